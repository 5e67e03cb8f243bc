//! Random program: the operations of every rank in each step, drawn from a seed.
//!
//! Each rank submits all tensors of a step in an order of its own, and then waits for all of them;
//! whatever the order, no rank waits for a tensor that another rank will never submit. A join is
//! waited for at the end of the step in which the last member joins. Between its join and that
//! step, a rank submits nothing in the set; in the step of its join it may skip some of the others'
//! operations.

use super::draw::Draw;
use super::work::{Kind, Work};

/// Operations of all ranks. Ranks are those of the job.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) seed: u64,
    pub(super) ranks: usize,
    /// Ranks of each process set, ascending; the set of all ranks first.
    pub(super) sets: Vec<Vec<usize>>,
    /// Actions of each step.
    pub(super) steps: Vec<Vec<Action>>,
    pub(super) odd: Option<Odd>,
}

/// Operations that some ranks of a set perform in a step.
#[derive(Clone, Debug)]
pub(super) struct Action {
    /// Position of the set in [`Program::sets`].
    pub(super) set: usize,
    /// Ranks that perform it. The other members have joined, or join in this step.
    pub(super) ranks: Vec<usize>,
    pub(super) deed: Deed,
}

#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// One tensor, or a group of this name.
    Tensors {
        group: Option<String>,
        tensors: Vec<Work>,
    },
    Barrier,
    /// Join of all members, complete in step `over`.
    Join {
        over: usize,
    },
}

/// Rank that submits a mismatch for one tensor.
#[derive(Clone, Debug)]
pub(super) struct Odd {
    pub(super) step: usize,
    pub(super) action: usize,
    pub(super) tensor: usize,
    pub(super) rank: usize,
    pub(super) instead: Work,
}

/// Joins of the members of a set, one after another.
struct Round {
    /// Step in which each member joins.
    at: Vec<usize>,
    over: usize,
}

/// Generator of a program.
struct Author {
    draw: Draw,
    /// Number of names of tensors, and of groups, in a set.
    names: usize,
    kinds: Vec<Kind>,
    /// One time in this many, a name is used for other operations.
    repeats: usize,
    /// Last operations under each name of each set: they are usually repeated.
    done: Vec<Vec<(String, Deed)>>,
}

impl Program {
    pub(super) fn new(seed: u64, ranks: usize) -> Self {
        let mut draw = Draw::new(seed);
        let mut sets = vec![(0..ranks).collect::<Vec<usize>>()];
        for _ in 0..draw.below(4) {
            let set: Vec<usize> = (0..ranks).filter(|_| draw.one_in(2)).collect();
            if !set.is_empty() && !sets.contains(&set) {
                sets.push(set);
            }
        }
        // A narrow program repeats mostly the same operations: the rare case is the same tensor at
        // the wrong time.
        let is_narrow = draw.one_in(3);
        let mut author = Author {
            names: if is_narrow { 2 } else { draw.pick(&[2, 8, 40]) },
            kinds: if is_narrow {
                vec![draw.pick(&Kind::ALL)]
            } else {
                Kind::ALL.to_vec()
            },
            repeats: if is_narrow { 2 } else { 4 },
            draw,
            done: vec![Vec::new(); sets.len()],
        };
        let steps = 2 + author.draw.below(10);
        let mut rounds: Vec<Option<Round>> = sets.iter().map(|_| None).collect();
        let steps = (0..steps).map(|step| {
            let mut actions = Vec::new();
            for (set, members) in sets.iter().enumerate() {
                let round = &mut rounds[set];
                if round.is_none() && author.draw.one_in(4) {
                    let mut joins = || (step + author.draw.below(3)).min(steps - 1);
                    let at: Vec<usize> = members.iter().map(|_| joins()).collect();
                    let over = at.iter().copied().max().unwrap_or(step);
                    *round = Some(Round { at, over });
                }
                author.step_of_set(set, members, step, round.as_ref(), &mut actions);
                round.take_if(|round| round.over == step);
            }
            actions
        });
        Self {
            seed,
            ranks,
            steps: steps.collect(),
            sets,
            odd: None,
        }
    }

    /// Removes all operations from the set of all ranks.
    pub(super) fn without_traffic_among_all(mut self) -> Self {
        for actions in &mut self.steps {
            actions.retain(|action| action.set != 0);
        }
        self
    }

    /// Appends a barrier to each set that has operations.
    pub(super) fn with_barriers_at_the_end(mut self) -> Self {
        let busy = |set: &usize| self.steps.iter().flatten().any(|action| action.set == *set);
        let busy: Vec<usize> = (0..self.sets.len()).filter(busy).collect();
        let barrier = |set: usize| Action {
            set,
            ranks: self.sets[set].clone(),
            deed: Deed::Barrier,
        };
        self.steps.push(busy.into_iter().map(barrier).collect());
        self
    }

    /// Lets one rank submit a mismatch, if there is a tensor that several ranks submit.
    pub(super) fn with_something_odd(mut self) -> Self {
        let mut draw = Draw::new(self.seed ^ 0x0dd);
        let mut places = Vec::new();
        for (step, actions) in self.steps.iter().enumerate() {
            for (action, Action { ranks, deed, .. }) in actions.iter().enumerate() {
                let tensors = if ranks.len() > 1 { deed.tensors() } else { &[] };
                places.extend((0..tensors.len()).map(|tensor| (step, action, tensor)));
            }
        }
        if !places.is_empty() {
            let (step, action, tensor) = draw.pick(&places);
            let Action { set, ranks, deed } = &self.steps[step][action];
            self.odd = Some(Odd {
                step,
                action,
                tensor,
                rank: draw.pick(ranks),
                instead: deed.tensors()[tensor].made_odd(&self.sets[*set], &mut draw),
            });
        }
        self
    }

    /// Returns the submission of `rank` for the tensor `tensor` of an action.
    pub(super) fn work(&self, step: usize, action: usize, tensor: usize, rank: usize) -> &Work {
        let is_here = |odd: &&Odd| {
            (odd.step, odd.action, odd.tensor, odd.rank) == (step, action, tensor, rank)
        };
        match self.odd.as_ref().filter(is_here) {
            Some(odd) => &odd.instead,
            None => &self.steps[step][action].deed.tensors()[tensor],
        }
    }

    /// Returns the input of `rank` for it, in bytes.
    pub(super) fn input(&self, step: usize, action: usize, tensor: usize, rank: usize) -> Vec<u8> {
        let number = [step, action, tensor, rank]
            .into_iter()
            .fold(self.seed, |number, part| {
                number.wrapping_mul(0x100_0000_01b3) ^ part as u64
            });
        let members = &self.sets[self.steps[step][action].set];
        self.work(step, action, tensor, rank)
            .input(members, rank, number)
    }
}

impl Deed {
    pub(super) fn tensors(&self) -> &[Work] {
        match self {
            Self::Tensors { tensors, .. } => tensors,
            Self::Barrier | Self::Join { .. } => &[],
        }
    }
}

impl Author {
    /// Adds the operations of the set in a step.
    fn step_of_set(
        &mut self,
        set: usize,
        members: &[usize],
        step: usize,
        round: Option<&Round>,
        actions: &mut Vec<Action>,
    ) {
        let joins_in = |place: usize| round.map_or(usize::MAX, |round| round.at[place]);
        // Share of the operations that a rank skips in the step of its join: one in this many; all,
        // half, or almost none.
        let omits: Vec<usize> = members
            .iter()
            .map(|_| self.draw.pick(&[1, 2, 1000]))
            .collect();
        let who = |draw: &mut Draw| -> Vec<usize> {
            let places = 0..members.len();
            let takes_part = places.filter(|&place| {
                joins_in(place) > step || joins_in(place) == step && !draw.one_in(omits[place])
            });
            takes_part.map(|place| members[place]).collect()
        };
        let mut names: Vec<String> = Vec::new();
        for _ in 0..self.draw.below(6) {
            let is_group = self.draw.one_in(4);
            let name = format!(
                "{}{}",
                if is_group { "g" } else { "t" },
                self.draw.below(self.names)
            );
            if names.contains(&name) {
                continue;
            }
            let deed = self.deed(set, members, &name, is_group);
            let ranks = who(&mut self.draw);
            actions.push(Action { set, ranks, deed });
            names.push(name);
        }
        if self.draw.one_in(6) {
            actions.push(Action {
                set,
                ranks: who(&mut self.draw),
                deed: Deed::Barrier,
            });
        }
        actions.retain(|action| !action.ranks.is_empty());
        let join = members
            .iter()
            .enumerate()
            .filter(|&(place, _)| joins_in(place) == step);
        let ranks: Vec<usize> = join.map(|(_, &rank)| rank).collect();
        if let Some(round) = round.filter(|_| !ranks.is_empty()) {
            let deed = Deed::Join { over: round.over };
            actions.push(Action { set, ranks, deed });
        }
    }

    /// Returns the operations under `name`: usually the same as before.
    fn deed(&mut self, set: usize, members: &[usize], name: &str, is_group: bool) -> Deed {
        let draw = &mut self.draw;
        let known = self.done[set].iter().position(|(known, _)| known == name);
        let mut deed = match known {
            Some(at) => self.done[set].swap_remove(at).1,
            None => {
                let count = if is_group { 1 + draw.below(4) } else { 1 };
                let kind = draw.pick(&self.kinds);
                let tensor_name = |index: usize| match is_group {
                    true => format!("{name}_{}of{count}", index + 1),
                    false => name.to_owned(),
                };
                let tensors =
                    (0..count).map(|index| Work::draw(tensor_name(index), kind, members, draw));
                Deed::Tensors {
                    tensors: tensors.collect(),
                    group: is_group.then(|| name.to_owned()),
                }
            }
        };
        if let Deed::Tensors { tensors, .. } = &mut deed
            && draw.one_in(self.repeats)
        {
            let changed = draw.below(tensors.len());
            if draw.one_in(2) {
                tensors[changed].change_rows(members.len(), draw);
            } else {
                let kind = draw.pick(&self.kinds);
                for tensor in tensors.iter_mut().skip(changed) {
                    *tensor = Work::draw(tensor.name.clone(), kind, members, draw);
                }
            }
        }
        self.done[set].push((name.to_owned(), deed.clone()));
        deed
    }
}
