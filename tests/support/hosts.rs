//! Availability of ranks on several hosts.

use super::processes::is_over_tcp;

/// Whether ranks on several hosts are available, or this is one of them.
pub(crate) fn has_hosts() -> bool {
    let is_rank = std::env::var_os("TEST_RONDE_BODY").is_some();
    let can = is_rank
        || is_over_tcp(&[])
        || (ronde::internal::mpi::has_mpi_plugin()
            && std::env::var_os("TEST_RONDE_MPIRUN").is_some());
    if !can {
        eprintln!(
            "left out: ranks on several hosts (RONDE_BACKEND=tcp, or TEST_RONDE_MPIRUN and scripts/build-mpi)"
        );
    }
    can
}
