//! Distribution of a job's ranks among its hosts.

use super::super::hosts::{address_of, is_this_machine};
use ronde::internal::identity::MAX_RANKS;
use std::ops::Range;

/// Reason why the ranks cannot be distributed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("the host {host} is listed twice; list it once, with all its slots ({host}:{slots})")]
    Twice { host: String, slots: usize },
    #[error("{first} and {second} are both this machine; list one of them, with all its slots")]
    Here { first: String, second: String },
    #[error(
        "{host} would get {ranks} ranks, and a host has at most {MAX_RANKS}; give it fewer slots"
    )]
    TooMany { host: String, ranks: usize },
    #[error(
        "{host} has a link-local address, at which other hosts do not find rank 0; give its name \
         or another address, or name the interface between the hosts with --network-interface"
    )]
    LinkLocal { host: String },
}

/// Host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct HostPlan {
    /// Name as the user gives it, perhaps with `user@` before it.
    pub(in super::super) name: String,
    pub(in super::super) is_this_machine: bool,
    /// Ranks of the job that run on it; none if the ranks have no fixed hosts.
    pub(in super::super) ranks: Range<usize>,
}

impl HostPlan {
    /// Another host than this one, for a job whose ranks have no fixed hosts.
    pub(in super::super) fn without_ranks(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_this_machine: false,
            ranks: 0..0,
        }
    }

    /// Name or address, without the user and the brackets of an IPv6 address.
    pub(in super::super) fn address(&self) -> &str {
        address_of(&self.name)
    }

    /// Argument of `ssh`: as `name`, but with an IPv6 address without brackets.
    pub(in super::super) fn destination(&self) -> String {
        match self.name.rsplit_once('@') {
            Some((user, _)) => format!("{user}@{}", self.address()),
            None => self.address().to_owned(),
        }
    }
}

/// Fills `hosts`, which have enough slots, in order with `num_proc` ranks. Hosts without ranks are
/// left out.
///
/// # Errors
/// A host that is listed twice, or gets more ranks than one host can have.
pub(in super::super) fn plan(
    hosts: &[(String, usize)],
    num_proc: usize,
) -> Result<Vec<HostPlan>, PlanError> {
    let mut plans: Vec<HostPlan> = Vec::new();
    let mut first = 0;
    for (index, (name, slots)) in hosts.iter().enumerate() {
        if hosts[..index].iter().any(|(before, _)| before == name) {
            let all = hosts.iter().filter(|(other, _)| other == name);
            let slots = all.fold(0, |sum: usize, (_, slots)| sum.saturating_add(*slots));
            let host = name.clone();
            return Err(PlanError::Twice { host, slots });
        }
        let is_this_machine = is_this_machine(name);
        let here = plans.iter().find(|plan| plan.is_this_machine);
        if let Some(here) = here.filter(|_| is_this_machine) {
            return Err(PlanError::Here {
                first: here.name.clone(),
                second: name.clone(),
            });
        }
        let ranks = (*slots).min(num_proc - first);
        if ranks > MAX_RANKS {
            let host = name.clone();
            return Err(PlanError::TooMany { host, ranks });
        }
        if ranks > 0 {
            plans.push(HostPlan {
                name: name.clone(),
                is_this_machine,
                ranks: first..first + ranks,
            });
        }
        first += ranks;
    }
    Ok(plans)
}

/// Checks that other hosts can use the name of the first one, where rank 0 is.
///
/// # Errors
/// It is an address with a scope, which each host has under another name.
pub(in super::super) fn check_first(plans: &[HostPlan]) -> Result<(), PlanError> {
    match plans.first() {
        Some(first) if first.address().contains('%') => Err(PlanError::LinkLocal {
            host: first.name.clone(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &[(&str, usize)], num_proc: usize) -> Result<Vec<HostPlan>, PlanError> {
        let hosts = hosts.iter().map(|(name, slots)| ((*name).into(), *slots));
        plan(&hosts.collect::<Vec<_>>(), num_proc)
    }

    #[test]
    fn ranks_fill_hosts_in_order() {
        let plans = of(&[("localhost", 2), ("b", 0), ("me@c", 4), ("d", 1)], 5).unwrap();
        let plans: Vec<_> = plans
            .iter()
            .map(|plan| (plan.name.as_str(), plan.is_this_machine, plan.ranks.clone()))
            .collect();
        assert_eq!(plans, [("localhost", true, 0..2), ("me@c", false, 2..5)]);
        let error = |hosts| of(hosts, 70).unwrap_err().to_string();
        assert_eq!(
            error(&[("a", 4), ("b", 4), ("a", 66)]),
            "the host a is listed twice; list it once, with all its slots (a:70)"
        );
        assert_eq!(
            error(&[("localhost", 4), ("127.0.0.1", 66)]),
            "localhost and 127.0.0.1 are both this machine; list one of them, with all its slots"
        );
        assert_eq!(
            error(&[("a", 4), ("b", 66)]),
            "b would get 66 ranks, and a host has at most 64; give it fewer slots"
        );
    }

    #[test]
    fn rank_0_has_an_address_for_all_hosts() {
        let check = |hosts: &[_]| check_first(&of(hosts, 2).unwrap());
        assert_eq!(check(&[("[fd00::1]", 1), ("[fe80::1%eth0]", 1)]), Ok(()));
        let error = check(&[("me@[fe80::1%eth0]", 1), ("b", 1)]).unwrap_err();
        let text = error.to_string();
        let start = "me@[fe80::1%eth0] has a link-local address";
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn names_for_ssh_and_for_sockets() {
        for (name, address, destination) in [
            ("node1", "node1", "node1"),
            ("me@node1", "node1", "me@node1"),
            ("[fd00::1]", "fd00::1", "fd00::1"),
            ("me@[fd00::1]", "fd00::1", "me@fd00::1"),
        ] {
            let plans = of(&[(name, 1)], 1).unwrap();
            assert_eq!(plans[0].address(), address);
            assert_eq!(plans[0].destination(), destination);
        }
    }
}
