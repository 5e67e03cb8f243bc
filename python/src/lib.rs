//! `ronde._ronde`: extension module of Ronde's Python package.
//!
//! The Python modules define names, defaults and everything specific to a framework. This module
//! converts tensors to addresses and errors to exceptions. `flight` holds a reference to each torch
//! tensor from its submission until its operation has completed; the cycle thread sees the address
//! and never a Python object. Waiting releases the GIL. Kernels of TensorFlow (`tensorflow`) and
//! JAX (`jax`) run without Python and submit through `collective`. `elastic` asks the launcher of
//! an elastic job for this process's rank.

use pyo3::prelude::*;

mod collective;
mod command;
mod dlpack;
mod elastic;
mod error;
mod flight;
mod jax;
mod logging;
mod memory;
mod operation;
mod runtime;
mod tensor;
mod tensorflow;
mod tuner;

/// Functions and classes of the extension module.
#[pymodule]
mod _ronde {
    #[pymodule_export]
    use super::command::{cli, version};
    #[pymodule_export]
    use super::elastic::{elastic_changes, elastic_join_failed, elastic_seat};
    #[pymodule_export]
    use super::flight::{poll, synchronize};
    #[pymodule_export]
    use super::jax::jax_handler;
    #[pymodule_export]
    use super::memory::{learn_tuner_memory, tuner_memory, tuner_revision};
    #[pymodule_export]
    use super::operation::{
        AllreduceName, allgather, allreduce, allreduce_batch, alltoall, broadcast,
        grouped_allgather, grouped_allreduce, grouped_reducescatter, reducescatter,
    };
    #[pymodule_export]
    use super::runtime::process_sets::{
        add_process_set, process_set_rank, process_sets, remove_process_set,
    };
    #[pymodule_export]
    use super::runtime::{
        autotune_report, backend, barrier, cross_rank, cross_size, init, is_homogeneous,
        is_initialized, join, local_rank, local_size, mark_epoch, mark_step, mpi_built,
        nccl_version, rank, shutdown, size, start_timeline, stop_timeline,
    };
    #[pymodule_export]
    use super::tensor::setup_torch;
    #[pymodule_export]
    use super::tensorflow::{raise_interrupt, register_tensorflow};
    #[pymodule_export]
    use super::tuner::TunerService;
}
