"""Modules of `horovod.runner` and `horovod.common` that programs and integrations import, by both
names."""

import argparse
import importlib
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
from launching import SECONDS, all_written, none_alive, wait_until
from ronde.common import util
from ronde.runner import launch
from ronde.runner.common.util import (
    codec,
    config_parser,
    env,
    host_hash,
    hosts,
    safe_shell_exec,
    secret,
    settings,
    timeout,
    tiny_shell_exec,
)
from ronde.runner.elastic import discovery, worker
from ronde.runner.elastic.settings import ElasticSettings
from ronde.runner.util import threads
from test_shim import check, horovodrun, python

HostUpdateResult = worker.HostUpdateResult


# The package name horovod.

PROVIDED = """
horovod.common.util: _cache check_extension extension_available gpu_available nccl_built split_list
horovod.runner.launch: parse_args run_commandline check_build gloo_built mpi_built nccl_built _run _HorovodArgs
horovod.runner.common.util.codec: dumps_base64 loads_base64
horovod.runner.common.util.config_parser: set_args_from_config set_env_from_args validate_config_args LOG_LEVELS
horovod.runner.common.util.env: get_env_rank_and_size is_exportable is_kubeflow_mpi
horovod.runner.common.util.host_hash: host_hash
horovod.runner.common.util.hosts: HostInfo SlotInfo INVALID_SLOT_INFO parse_hosts get_host_assignments parse_host_files
horovod.runner.common.util.safe_shell_exec: execute prefix_connection GRACEFUL_TERMINATION_TIME_S
horovod.runner.common.util.secret: make_secret_key compute_digest check_digest SECRET_LENGTH DIGEST_LENGTH
horovod.runner.common.util.settings: BaseSettings Settings
horovod.runner.common.util.timeout: Timeout TimeoutException
horovod.runner.common.util.tiny_shell_exec: execute
horovod.runner.elastic.discovery: HostDiscovery HostDiscoveryScript FixedHosts HostManager DiscoveredHosts HostState
horovod.runner.elastic.settings: ElasticSettings
horovod.runner.elastic.worker: HostUpdateResult WorkerNotificationManager
horovod.runner.util.threads: in_thread on_event execute_function_multithreaded
"""


def test_what_is_provided():
    lines = [line.partition(": ") for line in PROVIDED.strip().splitlines()]
    code = "import importlib\n" + "".join(
        f"module = importlib.import_module({module!r})\n"
        f"assert module is importlib.import_module({module.replace('horovod', 'ronde', 1)!r})\n"
        f"for name in {names.split()!r}: getattr(module, name)\n"
        for module, _, names in lines
    )
    check(code + "import sys\nassert 'torch' not in sys.modules\n")


def test_the_front_end_checks_its_extension():
    pytest.importorskip("torch")
    check("""
import horovod.torch as hvd
hvd.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", hvd.__file__, "mpi_lib_v2")
from horovod.torch import check_extension
try:
    check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", hvd.__file__, "mpi_lib")
except ImportError as error:
    assert "horovod.mxnet" in str(error)
else:
    raise AssertionError
""")


@pytest.mark.parametrize(
    "name",
    [
        "runner.common.service.driver_service",
        "runner.common.util.network",
        "runner.driver.driver_service",
        "runner.elastic.driver",
        "runner.elastic.rendezvous",
        "runner.gloo_run",
        "runner.http.http_server",
        "runner.mpi_run",
        "runner.task.task_service",
        "runner.util.network",
        "data.data_loader_base",
    ],
)
def test_what_is_not_provided_says_so(name):
    ended = python("-c", f"import horovod.{name}")
    assert ended.returncode == 1
    assert "ModuleNotFoundError: Ronde provides no horovod." in ended.stderr
    assert "horovodrun" in ended.stderr or "horovod.torch" in ended.stderr


# Hosts.


def test_hosts_and_their_ranks():
    parsed = hosts.parse_hosts("a:2, b.example-1:3,10.0.0.1:1")
    assert [(host.hostname, host.slots) for host in parsed] == [
        ("a", 2),
        ("b.example-1", 3),
        ("10.0.0.1", 1),
    ]
    places = hosts.get_host_assignments(parsed, 2, 5)
    assert places == [
        hosts.SlotInfo("a", rank=0, local_rank=0, cross_rank=0, size=5, local_size=2, cross_size=2),
        hosts.SlotInfo("a", rank=1, local_rank=1, cross_rank=0, size=5, local_size=2, cross_size=2),
        hosts.SlotInfo(
            "b.example-1", rank=2, local_rank=0, cross_rank=1, size=5, local_size=3, cross_size=2
        ),
        hosts.SlotInfo(
            "b.example-1", rank=3, local_rank=1, cross_rank=1, size=5, local_size=3, cross_size=2
        ),
        hosts.SlotInfo(
            "b.example-1", rank=4, local_rank=2, cross_rank=0, size=5, local_size=3, cross_size=1
        ),
    ]
    assert places[4].to_response_string() == "4,5,2,3,0,1"
    assert len(hosts.get_host_assignments(parsed, 6)) == 6
    with pytest.raises(
        ValueError, match=r"Requested more processes \(7\) than there are available slots \(6\)"
    ):
        hosts.get_host_assignments(parsed, 7)
    assert hosts.parse_hosts_and_slots("a:2,b:1") == (["a", "b"], {"a": 2, "b": 1})
    assert hosts.HostInfo("a", 2) == hosts.HostInfo.from_string(" a:2 ")
    assert hosts.HostInfo.from_string("[::1]:2").slots == 2


@pytest.mark.parametrize(
    "text", ["a", "a:", ":2", "a:-1", "a:x", "-oProxyCommand=id:2", "a b:2", "a:2,", ""]
)
def test_what_is_no_host(text):
    for parse in (hosts.parse_hosts, hosts.parse_hosts_and_slots):
        with pytest.raises(ValueError, match="Invalid host input.*worker-0:2"):
            parse(text)


def test_host_files(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("a slots=2\n\n# none\nb slots=4  # some\n")
    assert hosts.parse_host_files(path) == "a:2,b:4"
    path.write_text("a slots=2\nb\n")
    with pytest.raises(ValueError, match="line 2: 'b'"):
        hosts.parse_host_files(str(path))


# Discovery.


def test_hosts_that_a_script_prints(tmp_path):
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\necho a:2\necho\necho b\necho to nobody >&2\n")
    script.chmod(0o755)
    assert discovery.HostDiscoveryScript(str(script), 4).find_available_hosts_and_slots() == {
        "a": 2,
        "b": 4,
    }
    with pytest.raises(ValueError, match="'b' without slots"):
        discovery.HostDiscoveryScript(str(script), None).find_available_hosts_and_slots()
    with pytest.raises(ValueError, match="'a:x'"):
        discovery.HostDiscoveryScript("echo a:x", 4).find_available_hosts_and_slots()
    with pytest.raises(RuntimeError, match="exit code 3"):
        discovery.HostDiscoveryScript("exit 3", 4).find_available_hosts_and_slots()
    assert discovery.HostDiscoveryScript("true", 4).find_available_hosts_and_slots() == {}
    with pytest.raises(NotImplementedError):
        discovery.HostDiscovery().find_available_hosts_and_slots()


def test_hosts_that_come_and_go():
    found = discovery.FixedHosts({"a": 2})
    manager = discovery.HostManager(found)
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    found.set({"b": 2, "a": 2})
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.current_hosts.host_assignment_order == ["a", "b"]  # the oldest first
    assert manager.current_hosts.count_available_slots() == 4
    found.set({"b": 3, "c": 1})
    assert manager.update_available_hosts() == HostUpdateResult.mixed
    assert manager.current_hosts.host_assignment_order == ["b", "c"]
    found.set({"b": 1, "c": 1})
    assert manager.update_available_hosts() == HostUpdateResult.removed
    event = manager.get_host_event("b")
    manager.blacklist("b")
    assert event.is_set() and manager.is_blacklisted("b")
    assert manager.current_hosts.available_hosts == {"c"}
    assert manager.current_hosts.get_slots("b") == 1 and manager.current_hosts.get_slots("x") == 0
    found.set({"b": 1, "c": 2})
    manager.update_available_hosts()
    assert manager.current_hosts.available_hosts == {"c"}


def test_hosts_that_cool_down(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(discovery.time, "monotonic", lambda: now[0])
    found = discovery.FixedHosts({"a": 1, "b": 1})
    manager = discovery.HostManager(found, cooldown_range=(10, 100))
    manager.update_available_hosts()
    ends = []
    for _ in range(6):
        manager.blacklist("a")
        assert manager.update_available_hosts() == HostUpdateResult.no_update
        assert manager.current_hosts.host_assignment_order == ["b"]
        began = now[0]
        while manager.update_available_hosts() == HostUpdateResult.no_update:
            now[0] += 1.0
        ends.append(now[0] - began)
        assert not manager.is_blacklisted("a")
        assert manager.current_hosts.host_assignment_order == ["b", "a"]
    assert 20 <= ends[0] <= 31 and 40 <= ends[1] <= 51 and ends[-1] <= 101
    for wrong in ((0, 10), (1, 3601), (10, 5)):
        with pytest.raises(ValueError, match="cooldown range"):
            discovery.HostManager(found, cooldown_range=wrong)


def test_pickled_elastic_settings_have_no_discovery():
    made = ElasticSettings(discovery.FixedHosts({}), 1, 4, 600, None, num_proc=2, verbose=2)
    assert made.elastic and made.min_num_proc == 1 and made.num_proc == 2
    copy = pickle.loads(pickle.dumps(made))
    assert copy.discovery is None and copy.max_num_proc == 4 and made.discovery is not None
    assert settings.Settings(hosts="a:1", key=b"x").hosts == "a:1"


# Shell commands.


def shell(command, **options):
    stdout, stderr = io.StringIO(), io.StringIO()
    code = safe_shell_exec.execute(command, stdout=stdout, stderr=stderr, **options)
    return code, stdout.getvalue(), stderr.getvalue()


def test_commands_and_their_output():
    assert shell("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert shell(["printf", "%s|", "a b", "$HOME"]) == (0, "a b|$HOME|", "")
    assert shell("no-such-program 2>/dev/null")[0] == 127
    assert shell("kill -9 $$")[0] == 128 + 9
    assert shell("cat")[0] == 0  # there is no input
    assert shell("printf 'a\\rb\\nc'", index=1)[1] == "[1]<stdout>:a\r[1]<stdout>:b\n[1]<stdout>:c"
    stamped = shell("echo a", index=1, prefix_output_with_timestamp=True)[1]
    assert stamped.endswith("[1]<stdout>:a\n") and time.strptime(stamped.partition("[")[0])
    assert tiny_shell_exec.execute("echo a; exit 2") == ("a\n", 2)


def test_the_environment_of_a_command(monkeypatch):
    assert shell("echo $WORD", env={"WORD": "grün"})[1] == "grün\n"
    assert shell("echo $HOME", env={})[1] == "\n"
    monkeypatch.setenv("WORD", "own")
    assert shell("echo $WORD")[1] == "own\n"


def test_characters_that_are_split_or_wrong():
    command = "printf '\\303'; sleep 0.1; printf '\\274\\377\\n'"
    assert shell(command)[1] == "\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{REPLACEMENT CHARACTER}\n"


def test_much_output_and_closed_streams():
    code, output, _ = shell("yes 0123456789 | head -c 3000000")
    assert code == 0 and len(output) == 3_000_000
    closed = io.StringIO()
    closed.close()
    assert safe_shell_exec.execute("yes | head -c 3000000", stdout=closed) == 0


# Also starts a daemon whose parent has ended; each process writes its number.
TREE = """
sh -c 'echo $$ > {0}/pid0; exec sleep 600' &
(setsid sh -c 'echo $$ > {0}/pid1; exec sleep 600' &)
echo $$ > {0}/pid2
wait
"""


def tree(path):
    return TREE.format(path), [path / f"pid{number}" for number in range(3)]


def test_an_event_ends_all_that_a_command_has_started(tmp_path):
    command, paths = tree(tmp_path)
    event = threading.Event()
    threads.in_thread(lambda: (wait_until(lambda: all_written(paths)), event.set()))
    assert shell(command, events=[threading.Event(), event])[0] == 128 + signal.SIGTERM
    wait_until(lambda: none_alive(paths))  # a process ends when it gets some time


def test_commands_that_ignore_the_signal_are_killed(tmp_path, monkeypatch):
    event = threading.Event()
    path = tmp_path / "pid"
    threads.in_thread(lambda: (wait_until(lambda: all_written([path])), event.set()))
    began = time.monotonic()
    code, _, _ = shell(
        f"trap '' TERM; echo $$ > {path}; while :; do sleep 0.1; done", events=[event]
    )
    assert code == 128 + signal.SIGKILL
    wait_until(lambda: none_alive([path]))
    assert time.monotonic() - began >= safe_shell_exec.GRACEFUL_TERMINATION_TIME_S


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_command_ends_with_its_owner(tmp_path, number):
    command, paths = tree(tmp_path)
    code = f"from ronde.runner.common.util import safe_shell_exec as s; s.execute({command!r})"
    owner = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    wait_until(lambda: all_written(paths))
    owner.send_signal(number)
    assert owner.wait(SECONDS) != 0
    wait_until(lambda: none_alive(paths))


# Settings.


def parsed(*words):
    return launch.parse_args(["-np", "2", *words])


def test_flags_are_attributes():
    args = parsed(
        "-H", "a:1,b:1", "--cycle-time-ms", "2.5", "--autotune", "-p", "22", "python", "-np", "x.py"
    )
    assert isinstance(args, argparse.Namespace)
    assert (args.num_proc, args.hosts, args.cycle_time_ms, args.ssh_port) == (2, "a:1,b:1", 2.5, 22)
    assert args.autotune is True and args.hierarchical_allreduce is None and args.run_func is None
    assert args.command == ["python", "-np", "x.py"]
    assert parsed("--no-autotune", "x").autotune is False
    assert parsed("--stall-check", "x").no_stall_check is False
    assert parsed("--log-hide-timestamp", "x").log_with_timestamp is False
    assert parsed("--network-interfaces", "a,b", "--network-interface", "c").nics == {"a", "b", "c"}
    assert parsed("--min-np", "1", "--host-discovery-script", "h.sh").min_num_proc == 1
    assert parsed("--blacklist-cooldown-range", "1", "2", "x").cooldown_range == [1, 2]
    assert parsed("--slots-per-host", "3").slots == 3


def test_flags_come_from_the_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-np", "3", "x"])
    assert launch.parse_args().num_proc == 3


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-np", "two"],
        ["-np", "2", "--autotune", "--no-autotune"],
        ["-np", "2", "--gloo", "--mpi"],
        ["-np", "2", "-H", "a:1", "--hostfile", "b"],
        ["-np", "2", "--log-level", "LOUD"],
        ["-np", "2", "--no-such-flag"],
        ["-np", "2", "--config-file", "/no/such/file"],
    ],
)
def test_wrong_usage_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        launch.parse_args(words)
    assert ended.value.code == 2
    assert "horovodrun: error: " in capsys.readouterr().err


def test_what_is_out_of_range():
    with pytest.raises(ValueError, match="cycle_time_ms=-1.0 must be >= 0"):
        parsed("--cycle-time-ms=-1", "x")
    with pytest.raises(ValueError, match="must be in"):
        parsed("--autotune-gaussian-process-noise", "1.5", "x")


def test_check_build_tells_of_nccl_what_the_module_tells(monkeypatch, capsys):
    for version, mark in ((0, " "), (23007, "X")):
        monkeypatch.setattr(launch, "nccl_built", lambda version=version: version)
        with pytest.raises(SystemExit) as ended:
            launch.parse_args(["-cb"])
        assert ended.value.code == 0
        assert f"    [{mark}] NCCL\n" in capsys.readouterr().out
    monkeypatch.undo()
    from ronde.common.basics import HorovodBasics

    assert util.nccl_built() == HorovodBasics().nccl_built()
    mark = "X" if util.nccl_built() else " "
    assert f"    [{mark}] NCCL\n" in launch.check_build()
    for ended in (horovodrun("--check-build"), python("-m", "ronde", "run", "--check-build")):
        assert f"    [{mark}] NCCL\n" in ended.stdout


CONFIG = """
controller: gloo
params: {fusion_threshold_mb: 32, cycle_time_ms: 10, torus_allreduce: true}
autotune: {enabled: true, log_file: log.csv, warmup_samples: 4}
timeline: {filename: t.json, mark_cycles: true}
stall_check: {enabled: false, warning_time_seconds: 120}
library_options: {num_nccl_streams: 2}
logging: {level: INFO, with_timestamp: false}
"""


def test_a_configuration_file(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    args = parsed(
        "--fusion-threshold-mb", "16", "--no-timeline-mark-cycles", "--config-file", str(path), "x"
    )
    assert args.use_gloo and args.autotune and args.no_stall_check and args.torus_allreduce
    assert (args.fusion_threshold_mb, args.cycle_time_ms, args.timeline_mark_cycles) == (
        16,
        10,
        False,
    )
    assert config_parser.set_env_from_args({"KEPT": "1"}, args) == {
        "KEPT": "1",
        "HOROVOD_FUSION_THRESHOLD": str(16 << 20),
        "HOROVOD_CYCLE_TIME": "10",
        "HOROVOD_TORUS_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "log.csv",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "4",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "0",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_NUM_NCCL_STREAMS": "2",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }
    for text in ("controller: tcp", "params: 3", "[1, 2]", "a: [", "\x00"):
        path.write_text(text)
        with pytest.raises(SystemExit):
            parsed("--config-file", str(path), "x")


def test_settings_that_are_not_given_write_nothing():
    assert config_parser.set_env_from_args({}, argparse.Namespace()) == {}
    assert config_parser.set_env_from_args({}, parsed("--autotune-log-file", "x", "y")) == {}
    assert config_parser.set_env_from_args({}, parsed("--tcp", "y")) == {"NCCL_IB_DISABLE": "1"}


def test_what_was_parsed_can_be_run(tmp_path):
    code = "import os, sys; open(sys.argv[1] + os.environ['HOROVOD_RANK'], 'w').write(os.environ['HOROVOD_CYCLE_TIME'])"
    words = ["--cycle-time-ms", "2.5", "--stall-check", "--log-without-timestamp", "--gloo"]
    assert launch._run(parsed(*words, sys.executable, "-c", code, f"{tmp_path}/rank")) is None
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2.5", "2.5"]
    assert launch._run(parsed("--min-np", "1", "true")) is None
    with pytest.raises(NotImplementedError, match="jsrun"):
        launch._run(parsed("--jsrun", "true"))


# The rest.


def test_keys_and_digests():
    key = secret.make_secret_key()
    assert len(key) == secret.SECRET_LENGTH and key != secret.make_secret_key()
    digest = secret.compute_digest(key, b"message")
    assert len(digest) == secret.DIGEST_LENGTH
    assert secret.check_digest(key, b"message", digest)
    assert not secret.check_digest(key, b"another", digest)
    # RFC 4231, test case 2.
    known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert secret.compute_digest(b"Jefe", b"what do ya want for nothing?").hex() == known


def test_objects_as_text():
    assert codec.loads_base64(codec.dumps_base64({"a": [1, None]})) == {"a": [1, None]}
    assert isinstance(codec.dumps_base64(1, to_ascii=False), bytes)


def test_time_limits():
    limit = timeout.Timeout(60, "Waited for {activity}")
    assert 0 < limit.remaining() <= 60 and not limit.timed_out()
    limit.check_time_out_for("nothing")
    assert 0 < pickle.loads(pickle.dumps(limit)).remaining() <= 60
    over = timeout.Timeout(-1, "Waited for {activity}.")
    assert over.timed_out() and over.remaining() == 0
    with pytest.raises(
        timeout.TimeoutException, match="^Waited for hosts. Timeout after -1 seconds.$"
    ):
        over.check_time_out_for("hosts")


def test_hosts_have_identifiers():
    assert host_hash.host_hash() == host_hash.host_hash(0) != host_hash.host_hash("salt")
    assert host_hash.host_hash().startswith(os.uname().nodename.split(".")[0] + "-")


def test_variables_of_one_host(monkeypatch):
    assert env.is_exportable("PATH") and not env.is_exportable("BASH_FUNC_x%%")
    assert not env.is_exportable("OLDPWD") and not env.is_exportable("_HOROVOD_SECRET_KEY")
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh")
    assert env.is_kubeflow_mpi()


def test_calls_in_threads():
    assert threads.execute_function_multithreaded(divmod, [[7, 2], [9, 4]]) == {
        0: (3, 1),
        1: (2, 1),
    }
    assert threads.execute_function_multithreaded(int, [], True) == {}
    assert threads.execute_function_multithreaded(int, [["1"]], block_until_all_done=False) is None
    many = threads.execute_function_multithreaded(
        str, [[n] for n in range(50)], max_concurrent_executions=3
    )
    assert many == {n: str(n) for n in range(50)}
    with pytest.raises(ValueError):
        threads.execute_function_multithreaded(int, [["1"], ["x"]])


def test_results_that_are_kept():
    calls = []

    @util._cache
    def add(a, b=0):
        calls.append((a, b))
        if a < 0:
            raise ValueError
        return a + b

    assert (add(1), add(1), add(1, b=2), add(1, b=2)) == (1, 1, 3, 3)
    for _ in range(2):
        with pytest.raises(ValueError):
            add(-1)
    assert calls == [(1, 0), (1, 2), (-1, 0), (-1, 0)]


def test_modules_import_no_torch_and_nothing_else_that_is_big():
    names = [
        line.partition(":")[0].replace("horovod", "ronde", 1)
        for line in PROVIDED.strip().splitlines()
    ]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'yaml', 'psutil')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=SECONDS).returncode == 0
    assert importlib.import_module("ronde.runner.launch") is launch
