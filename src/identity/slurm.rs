//! Slurm: detects a step in Slurm's variables, and reads its number of tasks on each node.

use super::{IdentityError, Lookup};

/// Step numbers from this one on are Slurm's own (batch script, extern, interactive), not steps
/// started by srun.
const SPECIAL_STEP_MIN: u64 = 0xffff_fff0;

/// Longest list of tasks per node that is expanded; Slurm's largest clusters have fewer nodes.
const NODES_MAX: usize = 1 << 16;

/// Whether the process runs inside a step started by srun.
pub(super) fn inside_step(lookup: Lookup) -> bool {
    let step = lookup("SLURM_STEP_ID").or_else(|| lookup("SLURM_STEPID"));
    step.and_then(|step| step.parse::<u64>().ok())
        .is_some_and(|step| step < SPECIAL_STEP_MIN)
}

/// Number of tasks of the step on each node, by node number.
pub(super) struct Tasks {
    pub(super) variable: &'static str,
    text: String,
    counts: Vec<usize>,
}

impl Tasks {
    /// Reads the list of the step, or of the job if the step has none.
    pub(super) fn find(lookup: Lookup) -> Result<Option<Tasks>, IdentityError> {
        for variable in ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"] {
            if let Some(text) = lookup(variable) {
                return match unfold(&text) {
                    Some(counts) => Ok(Some(Tasks {
                        variable,
                        text,
                        counts,
                    })),
                    None => Err(IdentityError::TaskList {
                        variable,
                        value: text,
                        node: 0,
                    }),
                };
            }
        }
        Ok(None)
    }

    pub(super) fn on_node(&self, node: usize) -> Result<usize, IdentityError> {
        let missing = || IdentityError::TaskList {
            variable: self.variable,
            value: self.text.clone(),
            node,
        };
        self.counts.get(node).copied().ok_or_else(missing)
    }

    /// Returns the number of `node` among the nodes with `local_rank`, and the number of these
    /// nodes.
    pub(super) fn cross(&self, node: usize, local_rank: usize) -> (usize, usize) {
        let having = |counts: &[usize]| counts.iter().filter(|count| **count > local_rank).count();
        (having(&self.counts[..node]), having(&self.counts))
    }
}

/// Expands Slurm's `2(x3),1` to `[2, 2, 2, 1]`.
fn unfold(text: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for part in text.trim().split(',') {
        let (count, repeats) = match part.split_once("(x") {
            Some((count, repeats)) => (count, repeats.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if repeats > NODES_MAX - counts.len() {
            return None;
        }
        counts.resize(counts.len() + repeats, count.parse().ok()?);
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::unfold;

    #[test]
    fn lists_of_tasks_are_expanded() {
        let table = [
            ("2", Some(vec![2])),
            ("2(x3),1", Some(vec![2, 2, 2, 1])),
            ("4,2(x2)", Some(vec![4, 2, 2])),
            ("", None),
            ("2(x3", None),
            ("2(x)", None),
            ("2(x99999999)", None),
            ("a", None),
        ];
        for (text, expected) in table {
            assert_eq!(unfold(text), expected, "{text:?}");
        }
    }
}
