"""Settings of a job as attributes, with Horovod's names, for integrations."""

from __future__ import annotations

from typing import Any, Iterable, Optional

from .timeout import Timeout


class BaseSettings:
    """Settings of every job.

    ``key``: the job's secret; ``start_timeout``: the time limit for starting all ranks; ``nics``:
    names of network interfaces. The others are named like horovodrun's flags.
    """

    def __init__(
        self,
        num_proc: Optional[int] = None,
        verbose: int = 0,
        ssh_port: Optional[int] = None,
        ssh_identity_file: Optional[str] = None,
        extra_mpi_args: Optional[str] = None,
        tcp_flag: Optional[bool] = None,
        binding_args: Optional[str] = None,
        key: Optional[bytes] = None,
        start_timeout: Optional[Timeout] = None,
        output_filename: Optional[str] = None,
        run_func_mode: Optional[bool] = None,
        nics: Optional[Iterable[str]] = None,
        elastic: bool = False,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        self.num_proc = num_proc
        self.verbose = verbose
        self.ssh_port = ssh_port
        self.ssh_identity_file = ssh_identity_file
        self.extra_mpi_args = extra_mpi_args
        self.tcp_flag = tcp_flag
        self.binding_args = binding_args
        self.key = key
        self.start_timeout = start_timeout
        self.output_filename = output_filename
        self.run_func_mode = run_func_mode
        self.nics = nics
        self.elastic = elastic
        self.prefix_output_with_timestamp = prefix_output_with_timestamp


class Settings(BaseSettings):
    """Settings of a job with a fixed number of ranks, on ``hosts`` (``"node1:4,node2:4"``)."""

    def __init__(self, hosts: Optional[str] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hosts = hosts
