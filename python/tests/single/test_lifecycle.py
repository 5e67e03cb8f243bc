"""Lifecycle of processes: outside of a job, several jobs in turn, forked, interrupted,
abandoned."""

import os
import subprocess
import sys
import textwrap

import pytest

SECONDS = 120  # a generous deadline: starting torch on a busy machine takes a while

PREAMBLE = """
import os, pathlib, pickle, signal, sys, threading, time, warnings
import pytest, torch
import ronde.torch as hvd
from ronde.torch import HorovodInternalError
"""


def run(program, *, ranks=None, folder=None, **environment):
    """Runs a program, in ranks or alone; returns the finished process, with output and errors
    joined."""
    program = PREAMBLE + textwrap.dedent(program)
    command = [sys.executable, "-c", program]
    if ranks:
        command = [sys.executable, "-m", "ronde", "run", "-np", str(ranks), "--", *command]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    return subprocess.run(
        command,
        env={**variables, **environment},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )


def succeeds(program, **how):
    outcome = run(program, **how)
    assert outcome.returncode == 0, outcome.stdout
    return outcome.stdout


OUTSIDE_OF_A_JOB = """
def check():
    words = "has not been initialized; use hvd.init"
    assert not hvd.is_initialized()
    for ask in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size,
                hvd.mpi_ops.is_homogeneous, hvd.stop_timeline, hvd.autotune_report, hvd.mark_step,
                hvd.global_process_set.size, hvd.global_process_set.included):
        with pytest.raises(ValueError, match=words):
            ask()
    with pytest.raises(ValueError, match=words):
        hvd.add_process_set([0])
    ones = torch.ones(2)
    for work in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather,
                 hvd.alltoall, hvd.reducescatter, lambda tensor: hvd.broadcast(tensor, 0),
                 lambda tensor: hvd.grouped_allreduce([tensor]), lambda tensor: hvd.barrier(),
                 lambda tensor: hvd.join()):
        with pytest.raises(HorovodInternalError, match=words):
            work(ones)
    assert not hvd.mpi_enabled() and not hvd.gloo_enabled()
    assert str(hvd.global_process_set) == "ProcessSet(process_set_id=0, ranks=None, mpi_comm=None)"
    hvd.shutdown()
"""


def test_before_init_and_after_shutdown():
    succeeds(
        OUTSIDE_OF_A_JOB
        + """
check()
hvd.init()
assert (hvd.rank(), hvd.size()) == (0, 1)
handle = hvd.allreduce_async(torch.ones(3))
assert hvd.synchronize(handle).tolist() == [1.0] * 3
hvd.shutdown()
check()
"""
    )


def test_a_hundred_rounds_with_an_error_in_each():
    succeeds(
        """
        for round in range(100):
            hvd.init()
            rank = hvd.rank()
            assert hvd.size() == 2
            total = hvd.allreduce(torch.full((1000,), float(rank + round)), name="round", op=hvd.Sum)
            assert total[0].item() == 1 + 2 * round
            if round % 3 == 0:  # on both ranks
                with pytest.raises(HorovodInternalError, match="(?i)mismatched"):
                    hvd.allreduce(torch.ones(3 + rank))
            elif round % 3 == 1:  # on one, and an operation that is never waited for
                if rank == round % 2:
                    hvd.allreduce_async(torch.ones(5), name="never")
                    with pytest.raises(ValueError, match="same name"):
                        hvd.allreduce_async(torch.ones(5), name="never")
            else:  # in a call
                with pytest.raises(ValueError, match="contiguous"):
                    hvd.allreduce_(torch.ones(2, 3).t())
            hvd.barrier()
            hvd.shutdown()
            assert not hvd.is_initialized()
        """,
        ranks=2,
    )


def test_shutdown_with_an_operation_in_flight():
    succeeds(
        """
        hvd.init()
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(torch.ones(3), name="alone")
            hvd.barrier()
            hvd.shutdown()
            with pytest.raises(HorovodInternalError, match="Horovod has been shut down"):
                hvd.synchronize(handle)
        else:
            hvd.barrier()
        """,
        ranks=2,
    )


def test_data_loader_workers():
    succeeds(
        """
        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, index):
                return torch.full((4,), float(index))

        hvd.init()
        handle = hvd.allreduce_async(torch.ones(2), name="before") if hvd.rank() == 0 else None
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork"
        )
        for epoch in range(2):
            total = 0.0
            for batch in loader:
                total += hvd.allreduce(batch, name="batch", op=hvd.Sum).sum().item()
            assert total == 2 * 4 * sum(range(64))
        if handle is None:
            handle = hvd.allreduce_async(torch.ones(2), name="before")
        assert hvd.synchronize(handle).tolist() == [1.0, 1.0]
        """,
        ranks=2,
    )


def test_a_forked_child_is_told_so():
    succeeds(
        """
        hvd.init()
        child = os.fork()
        if child == 0:
            try:
                with pytest.raises(HorovodInternalError, match="forked"):
                    hvd.allreduce(torch.ones(2))
                with pytest.raises(HorovodInternalError, match="forked"):
                    hvd.barrier()
                hvd.shutdown()
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2.0, 2.0]
        """,
        ranks=2,
    )


def test_a_wait_can_be_interrupted_and_taken_up_again(tmp_path):
    succeeds(
        """
        hvd.init()
        interrupted = pathlib.Path("interrupted")
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(torch.ones(2), name="late", op=hvd.Sum)
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                hvd.synchronize(handle)
            assert not hvd.poll(handle)
            interrupted.touch()
            assert hvd.synchronize(handle).tolist() == [2.0, 2.0]
        else:
            while not interrupted.exists():
                time.sleep(0.02)
            hvd.allreduce(torch.ones(2), name="late", op=hvd.Sum)
        """,
        ranks=2,
        folder=tmp_path,
    )


def test_waits_for_process_sets_can_be_interrupted(tmp_path):
    succeeds(
        """
        hvd.init(process_sets="dynamic")
        interrupted = pathlib.Path("interrupted")
        if hvd.rank() == 0:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                hvd.add_process_set([0])
            interrupted.touch()
        else:
            while not interrupted.exists():
                time.sleep(0.02)
            hvd.add_process_set([0])
        hvd.barrier()
        """,
        ranks=2,
        folder=tmp_path,
    )


def test_threads_begin_one_job():
    succeeds(
        """
        threads = [threading.Thread(target=hvd.init) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hvd.size() == 2
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x").item() == 2.0
        """,
        ranks=2,
    )


def test_a_shutdown_ends_a_join_in_another_thread():
    succeeds(
        """
        hvd.init()
        if hvd.rank() == 0:
            errors = []
            def join():
                try:
                    hvd.join()
                except hvd.HorovodInternalError as error:
                    errors.append(error)
            thread = threading.Thread(target=join)
            thread.start()
            time.sleep(0.5)
            hvd.shutdown()
            thread.join(60)
            assert errors, "join goes on"
        else:
            with pytest.raises(hvd.HorovodInternalError):
                while True:
                    hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x")
        """,
        ranks=2,
    )


INTERRUPTED = """
weights = [torch.nn.Parameter(torch.zeros(4, 2)), torch.nn.Parameter(torch.zeros(2))]
def loss(scale):
    rows = torch.nn.functional.embedding(torch.tensor([1]), weights[0], sparse={sparse})
    return scale * (rows + weights[1]).sum()

def interrupt_step():
    before = [weight.detach().clone() for weight in weights]
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert all(map(torch.equal, before, weights))

hvd.init()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), {options})
for step in range(4):
    interrupted = pathlib.Path("interrupted", str(step))
    while step and hvd.rank() and not interrupted.exists():
        time.sleep(0.02)
    optimizer.zero_grad()
    loss(2.0).backward()
    if step and hvd.rank() == 0:
        interrupt_step()
        interrupted.touch()
        {again}
    else:
        optimizer.step()
    assert weights[0].tolist() == [[0.0] * 2, [-2.0 * (step + 1)] * 2, [0.0] * 2, [0.0] * 2], weights
    assert weights[1].tolist() == [-2.0 * (step + 1)] * 2, weights
"""

AGAIN = {
    "step": "optimizer.step()",
    "synchronize": """
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    """,
}


@pytest.mark.parametrize(
    "sparse, options, again",
    [
        (True, "", "step"),
        (True, "", "synchronize"),
        (False, "groups=1", "synchronize"),
    ],
)
def test_an_interrupted_step_can_be_completed(tmp_path, sparse, options, again):
    (tmp_path / "interrupted").mkdir()
    again = textwrap.indent(textwrap.dedent(AGAIN[again]), " " * 8).strip()
    program = INTERRUPTED.format(sparse=sparse, options=options, again=again)
    succeeds(program, ranks=2, folder=tmp_path)


@pytest.mark.parametrize("options", ["", "groups=1", "compression=hvd.Compression.fp16"])
def test_gradients_of_a_job_that_has_ended_are_an_error(options):
    succeeds(
        f"""
        hvd.init()
        weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), {options})

        def backward():
            optimizer.zero_grad()
            ((hvd.rank() + 1.0) * sum(weights)).sum().backward()

        def check(steps):
            assert all(weight.tolist() == [-1.5 * steps] * 3 for weight in weights), weights

        def join_again():
            hvd.shutdown()
            hvd.init()

        backward()
        optimizer.step()
        is_first = hvd.rank() == 0
        if is_first:
            backward()
        join_again()
        if is_first:
            with pytest.raises(HorovodInternalError, match="submitted before hvd.shutdown"):
                optimizer.step()
        check(1)
        backward()
        optimizer.step()
        check(2)
        join_again()  # between steps
        backward()
        optimizer.step()
        check(3)
        """,
        ranks=2,
    )


def test_an_interrupted_adasum_step_changes_no_parameter(tmp_path):
    succeeds(
        """
        interrupted = pathlib.Path("interrupted")
        hvd.init()
        weight = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)
        weight.sum().backward()
        optimizer.step()
        before = weight.detach().clone()
        if hvd.rank() == 0:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
            interrupted.touch()
        else:
            while not interrupted.exists():
                time.sleep(0.02)
        assert torch.equal(weight, before) and before.any()
        """,
        ranks=2,
        folder=tmp_path,
    )


@pytest.mark.parametrize("backend", ["local", "tcp"])
def test_an_interrupted_init_leaves_no_thread(backend):
    succeeds(
        f"""
        def name(thread):
            try:
                return pathlib.Path("/proc/self/task", thread, "comm").read_text().strip()
            except OSError:
                return ""  # it has just ended

        def threads():
            names = map(name, os.listdir("/proc/self/task"))
            return [thread for thread in names if thread.startswith("ronde-")]

        identity = dict(RANK="1", SIZE="2", LOCAL_RANK="1", LOCAL_SIZE="2")
        os.environ.update({{f"HOROVOD_{{name}}": number for name, number in identity.items()}})
        os.environ.update(RONDE_BACKEND="{backend}", RONDE_TCP_SERVER="127.0.0.1:9")
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            hvd.init()  # rank 0 never comes
        deadline = time.monotonic() + 20  # the start timeout is 30 s or more
        while threads():
            assert time.monotonic() < deadline, threads()
            time.sleep(0.05)
        """
    )


def test_waiting_leaves_other_threads_running():
    succeeds(
        """
        hvd.init()
        if hvd.rank() == 0:
            ticks = 0
            def tick():
                global ticks
                while not done.is_set():
                    ticks += 1
                    time.sleep(0.01)
            done = threading.Event()
            thread = threading.Thread(target=tick)
            thread.start()
            hvd.barrier()  # the other rank takes its time
            done.set()
            thread.join()
            assert ticks >= 3, ticks  # in a second; on a busy machine few
        else:
            time.sleep(1)
            hvd.barrier()
        """,
        ranks=2,
    )


def test_one_rank_raises(tmp_path):
    outcome = run(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # there is something to write first
        hvd.init()
        hvd.allreduce(torch.ones(2), name="together")
        if hvd.rank() == 1:
            raise RuntimeError("the data is broken")
        try:
            hvd.allreduce(torch.ones(2), name="alone")
        except HorovodInternalError as error:
            pathlib.Path("told").write_text(f"{error.rank} {error}")
        """,
        ranks=2,
        folder=tmp_path,
    )
    assert outcome.returncode != 0
    assert "the data is broken" in outcome.stdout
    told = (tmp_path / "told").read_text()
    assert told.startswith("1 Horovod has been shut down"), told


def test_one_rank_dies(tmp_path):
    outcome = run(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hvd.init()
        hvd.allreduce(torch.ones(2), name="together")
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            hvd.allreduce(torch.ones(2), name="alone")
        except HorovodInternalError as error:
            pathlib.Path("told").write_text(f"{error.rank} {error}")
        """,
        ranks=2,
        folder=tmp_path,
    )
    assert outcome.returncode != 0
    told = (tmp_path / "told").read_text()
    assert told.startswith("1 Horovod has been shut down"), told


def test_leaving_without_shutdown():
    succeeds(
        """
        hvd.init()
        hvd.allreduce(torch.ones(2))
        """,
        ranks=2,
    )


def test_static_process_sets():
    succeeds(
        """
        rank = int(os.environ["HOROVOD_RANK"])
        rest = hvd.ProcessSet(reversed(range(1, 3)) if rank else range(1, 3))
        with pytest.raises(ValueError):
            hvd.init(process_sets=[hvd.ProcessSet([0]), rest, hvd.ProcessSet([0])])
        first = hvd.ProcessSet([0])
        hvd.init(process_sets=[first, rest])
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2], 1: [0], 2: [1, 2]}
        assert (first.process_set_id, rest.process_set_id) == (1, 2)
        mine = rest if rank else first
        assert hvd.allgather(torch.tensor([rank]), process_set=mine).tolist() == mine.ranks
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
            hvd.add_process_set([0, 1])
        hvd.barrier()
        hvd.shutdown()
        assert first.process_set_id is None and rest.process_set_id is None
        assert hvd.global_process_set.ranks is None
        hvd.init(process_sets=[rest])
        assert rest.process_set_id == 1
        assert hvd.global_process_set.ranks == [0, 1, 2]
        """,
        ranks=3,
    )


def test_dynamic_process_sets():
    succeeds(
        """
        hvd.init(process_sets="dynamic")
        first, second = hvd.add_process_set([0]), hvd.add_process_set([1])
        mine = (first, second)[hvd.rank()]
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=mine).tolist() == [1.0, 1.0]
        assert hvd.remove_process_set(first) and hvd.remove_process_set(second)
        """,
        ranks=2,
    )


def test_a_part_of_the_job():
    succeeds(
        """
        rank = int(os.environ["HOROVOD_RANK"])
        if rank == 1:
            hvd.init(comm=[1])
            assert (hvd.rank(), hvd.size()) == (0, 1)
        else:
            hvd.init(comm=[2, 0])
            assert (hvd.rank(), hvd.size()) == (0 if rank == 2 else 1, 2)
            assert hvd.allgather(torch.tensor([rank])).tolist() == [2, 0]
        """,
        ranks=3,
    )


COMMUNICATORS = """
class Communicator:
    \"\"\"As far as it matters, mpi4py's: the ranks talk by files.\"\"\"
    count = 0
    def __init__(self, name, members):
        self.name, self.members = name, members
    def Get_rank(self):
        return self.members.index(rank)
    def allgather(self, value):
        Communicator.count += 1
        parts = [pathlib.Path(f"{self.name}.{Communicator.count}.{member}") for member in self.members]
        mine = parts[self.Get_rank()]
        new = pathlib.Path(f"{mine}.new")
        new.write_bytes(pickle.dumps(value))
        new.rename(mine)
        while not all(part.exists() for part in parts):
            time.sleep(0.01)
        return [pickle.loads(part.read_bytes()) for part in parts]

rank = int(os.environ["HOROVOD_RANK"])
COMM_WORLD = Communicator("world", [0, 1, 2])
"""


def test_communicators(tmp_path):
    succeeds(
        COMMUNICATORS
        + textwrap.dedent(
            """
            even, odd = [0, 2], [1]
            part = Communicator("part", even if rank % 2 == 0 else odd)
            mine = hvd.ProcessSet(part)
            hvd.init(comm=COMM_WORLD, process_sets=[mine, [0]])
            sets = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
            assert sets == {0: [0, 1, 2], 1: even, 2: odd, 3: [0]}, sets
            assert mine.process_set_id == (2 if rank == 1 else 1)
            assert mine.ranks == part.members and mine.mpi_comm is part
            assert hvd.global_process_set.mpi_comm is COMM_WORLD
            assert hvd.allgather(torch.tensor([rank]), process_set=mine).tolist() == part.members
            """
        ),
        ranks=3,
        folder=tmp_path,
    )


def test_timelines_want_to_be_announced():
    succeeds(
        """
        hvd.init()
        with pytest.raises(ValueError, match="HOROVOD_TIMELINE=DYNAMIC"):
            hvd.start_timeline("timeline.json")
        """
    )


def test_what_cannot_be_initialized():
    succeeds(
        """
        with pytest.raises(ValueError, match="Horovod initialization failed"):
            hvd.init(process_sets=[[0, 7]])
        assert not hvd.is_initialized()
        hvd.init()
        """
    )


def test_torch_is_missing():
    outcome = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['torch'] = None; import ronde, ronde.torch"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
    )
    assert outcome.returncode == 1
    last = outcome.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ronde.torch needs PyTorch") and "pip install torch" in last


def test_other_errors_of_torchs_import_are_its_own():
    outcome = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['torch.nn'] = None; import ronde.torch"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
    )
    assert outcome.returncode == 1
    assert "needs PyTorch" not in outcome.stderr
