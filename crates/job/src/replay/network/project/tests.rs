//! Tests of projections with numbers that can be checked by hand.

use super::*;
use crate::fusion::Item;
use crate::replay::WorkTensor;

fn costs(alpha_us: f64, us_per_byte: f64) -> Costs {
    let flat = Collective {
        alpha_us,
        us_per_byte,
    };
    let negotiation = Negotiation {
        base_us: 50.0,
        per_tensor_us: 1.0,
    };
    Costs {
        flat: vec![flat],
        hierarchical: vec![flat],
        operations: Vec::new(),
        cached: negotiation,
        uncached: negotiation,
        ..Costs::default()
    }
}

fn workload() -> Workload {
    let tensor = WorkTensor {
        item: Item {
            class: 0,
            bytes: 4000,
            group: None,
        },
        pending_us: 9_000.0,
        ready_us: 10_000.0,
    };
    Workload {
        tensors: vec![tensor],
        tail_us: 100.0,
    }
}

fn measured(place: JobTopology) -> Measured {
    Measured {
        place,
        algorithm: Algorithm::Ring,
        launch: 0.0,
    }
}

fn target(ranks: u32, per_host: u32, network: Option<&str>) -> Target {
    Target {
        topology: Topology::new(ranks, per_host),
        network: network.map(|name| Network::parse(name).unwrap()),
        local: None,
        algorithm: Algorithm::Ring,
    }
}

#[test]
fn a_ring_of_more_ranks_has_more_hops_and_hardly_more_bytes() {
    // Four ranks, each on its own host: 600 µs are 6 hops of 100; 1.5 ns per byte is 1 ns on the
    // link.
    let from = measured(JobTopology::new(4, 1));
    let there = target(16, 1, None)
        .project(&from, &workload(), &costs(600.0, 1.5e-3))
        .unwrap();
    let flat = there.costs.flat[0];
    assert!((flat.alpha_us - 3_000.0).abs() < 1e-9, "{flat:?}");
    assert!((flat.us_per_byte - 1.875e-3).abs() < 1e-12, "{flat:?}");
    // log₂ 16 over log₂ 4, and four times as many ranks that rank 0 receives from.
    assert!((there.costs.cached.base_us - 100.0).abs() < 1e-9);
    assert!((there.costs.uncached.per_tensor_us - 4.0).abs() < 1e-9);
    // The maximum of 4 is 1.029 sd, of 16 it is 1.766; the range of 1 ms was 2.059 sd.
    let tensor = there.workload.tensors[0];
    assert!((tensor.ready_us - 10_358.0).abs() < 1.0, "{tensor:?}");
    assert!((tensor.pending_us - 8_642.0).abs() < 1.0, "{tensor:?}");
}

#[test]
fn another_network_has_its_own_numbers() {
    let from = measured(JobTopology::one_host(2));
    let there = target(2, 1, Some("1000,2.5"))
        .project(&from, &workload(), &costs(20.0, 1e-4))
        .unwrap();
    assert!((there.costs.flat[0].alpha_us - 2_000.0).abs() < 1e-9);
    assert!((there.costs.flat[0].us_per_byte - 4e-4).abs() < 1e-12);
    // At most 10 µs count as launch.
    let launched = Measured {
        launch: 1.0,
        ..from
    };
    let there = target(2, 1, Some("1000,2.5"))
        .project(&launched, &workload(), &costs(20.0, 1e-4))
        .unwrap();
    assert!((there.costs.flat[0].alpha_us - 2_010.0).abs() < 1e-9);
}

#[test]
fn hierarchy_saves_hops_across() {
    let from = measured(JobTopology::one_host(8));
    let there = target(64, 8, Some("25gbe"))
        .project(&from, &workload(), &costs(28.0, 1.75e-4))
        .unwrap();
    // Inside: 2 µs per hop, 0.1 ns per byte. Flat: 112 hops inside, 14 across.
    let (flat, hierarchical) = (there.costs.flat[0], there.costs.hierarchical[0]);
    assert!(
        (flat.alpha_us - (112.0 * 2.0 + 14.0 * 25.0)).abs() < 1e-9,
        "{flat:?}"
    );
    assert!(
        (hierarchical.alpha_us - (100.0 + 14.0 * 2.0 + 14.0 * 25.0)).abs() < 1e-9,
        "{hierarchical:?}"
    );
    assert!(hierarchical.us_per_byte < flat.us_per_byte + 1.75e-4);
}

#[test]
fn what_was_not_measured_has_to_be_named() {
    let project = |place, to: Target| {
        to.project(&measured(place), &workload(), &costs(20.0, 1e-4))
            .map(|_| ())
    };
    let error = project(JobTopology::one_host(2), target(16, 2, None)).unwrap_err();
    assert!(
        error.to_string().contains("8 hosts of 16 ranks")
            && error.to_string().contains("--network 25gbe")
    );
    assert_eq!(
        project(JobTopology::one_host(1), target(16, 1, None)),
        Err(ProjectError::NothingMeasured)
    );
    assert_eq!(
        project(JobTopology::one_host(1), target(16, 1, Some("10gbe"))),
        Ok(())
    );
    assert_eq!(
        project(JobTopology::one_host(2), target(16, 16, None)),
        Ok(())
    );
}

#[test]
fn the_same_place_changes_nothing_and_farther_is_less_sure() {
    let place = JobTopology::new(4, 2);
    let same = Target::same(&place);
    let there = same
        .project(&measured(place), &workload(), &costs(20.0, 1e-4))
        .unwrap();
    assert_eq!(
        (there.costs, there.workload),
        (costs(20.0, 1e-4), workload())
    );
    assert_eq!(same.widening(&place), Widening::default());
    let sd = |ranks| target(ranks, 2, None).widening(&place).alpha;
    assert!(sd(8) > 0.0 && sd(1024) > sd(8) && sd(2) > 0.0);
    assert!(target(4, 2, Some("25gbe")).widening(&place).alpha >= 0.5);
    assert!(same.assumptions(&place).is_empty());
}

#[test]
fn what_holds_for_several_targets_is_said_of_all_in_the_same_words() {
    let place = JobTopology::new(2, 1).with_hosts(crate::replay::Hosts::Shaped);
    let said = |ranks| target(ranks, 2, Some("25gbe")).assumptions(&place);
    assert_eq!(said(16), said(1024));
    assert!(
        said(16)[0].contains("2 ranks on 1 host, taken for 2 hosts"),
        "{:?}",
        said(16)
    );
}
