//! ABIs of MPI: names of their libraries, texts by which their libraries identify themselves, and
//! the order in which a launcher's variables put them.

use ronde_mpi_table::Abi;

use crate::identity::Lookup;

/// Names by which a library of each ABI is looked up.
///
/// Of MPICH's ABI: MPICH's and Intel MPI's own, Debian's for MPICH, Cray's for each compiler.
pub(super) fn names(abi: Abi) -> &'static [&'static str] {
    match abi {
        Abi::OpenMpi => &["libmpi.so.40"],
        Abi::Mpich => &[
            "libmpi.so.12",
            "libmpich.so.12",
            "libmpi_cray.so.12",
            "libmpi_gnu_123.so.12",
            "libmpi_gnu_112.so.12",
            "libmpi_gnu_103.so.12",
            "libmpi_gnu_91.so.12",
        ],
    }
}

/// Library of the standard ABI of MPI 5, for which there is no plug-in.
pub(super) const STANDARD: &str = "libmpi_abi.so.1";

/// Families that share an ABI, in a sentence.
pub(super) fn family(abi: Abi) -> &'static str {
    match abi {
        Abi::OpenMpi => "Open MPI",
        Abi::Mpich => "MPICH",
    }
}

/// ABI of the library whose `MPI_Get_library_version` returns `text`.
pub(super) fn of_version(text: &str) -> Option<Abi> {
    let of_mpich = ["MPICH", "Intel(R) MPI", "MVAPICH"];
    if text.starts_with("Open MPI") {
        Some(Abi::OpenMpi)
    } else if of_mpich.iter().any(|name| text.contains(name)) {
        Some(Abi::Mpich)
    } else {
        None
    }
}

/// Shortens a version text to the name and number: `Open MPI v4.1.4`, `MPICH Version: 4.0.2`.
pub(in crate::mpi) fn short(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    let name = line.split(',').next().unwrap_or_default();
    let words: Vec<&str> = name.trim_end_matches('\0').split_whitespace().collect();
    words.join(" ")
}

/// ABIs that fit the launcher whose variables `lookup` has, the preferred one first.
///
/// Open MPI's `mpirun` starts Open MPI's ranks only, Hydra those of MPICH's family. `srun` starts
/// either; its variables name the PMI that it provides.
pub(super) fn fitting(lookup: Lookup) -> &'static [Abi] {
    let has = |name| lookup(name).is_some();
    match (
        has("OMPI_COMM_WORLD_SIZE"),
        has("PMI_SIZE") || has("PMI_RANK"),
    ) {
        (true, false) => &[Abi::OpenMpi],
        (false, true) if !has("SLURM_STEP_ID") => &[Abi::Mpich],
        (false, true) if !has("PMIX_RANK") => &[Abi::Mpich, Abi::OpenMpi],
        _ => &[Abi::OpenMpi, Abi::Mpich],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_what_they_say() {
        let table = [
            (
                "Open MPI v4.1.4, package: Debian OpenMPI",
                Some(Abi::OpenMpi),
            ),
            ("Open MPI v5.0.11, package: Open MPI", Some(Abi::OpenMpi)),
            (
                "MPICH Version:\t4.0.2\nMPICH Release date:",
                Some(Abi::Mpich),
            ),
            (
                "Intel(R) MPI Library 2021.19 for Linux* OS",
                Some(Abi::Mpich),
            ),
            ("MVAPICH Version      :\t3.0", Some(Abi::Mpich)),
            (
                "MPI VERSION    : CRAY MPICH version 8.1.27.26 (ANL base 3.4a2)",
                Some(Abi::Mpich),
            ),
            ("HPE MPT 2.25", None),
            ("", None),
        ];
        for (text, abi) in table {
            assert_eq!(of_version(text), abi, "{text}");
        }
    }

    #[test]
    fn the_launcher_decides() {
        let order = |names: &str| {
            let names: Vec<&str> = names.split_whitespace().collect();
            fitting(&|name| names.contains(&name).then(|| "1".to_owned()))
        };
        assert_eq!(order("OMPI_COMM_WORLD_SIZE PMIX_RANK"), [Abi::OpenMpi]);
        assert_eq!(order("PMI_SIZE PMI_RANK"), [Abi::Mpich]);
        assert_eq!(order("SLURM_STEP_ID PMI_RANK"), [Abi::Mpich, Abi::OpenMpi]);
        assert_eq!(order("SLURM_STEP_ID PMIX_RANK"), [Abi::OpenMpi, Abi::Mpich]);
        assert_eq!(order("RANK WORLD_SIZE"), [Abi::OpenMpi, Abi::Mpich]);
    }
}
