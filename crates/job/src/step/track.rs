//! Tracking of a known period: the tensors that the current step still expects.

use super::{Item, KeyMap, Observation, Period, mix};

/// Foreign tensors, minus own ones, after which the period no longer describes the job: as many as
/// this number of periods have, and at least `FOREIGN_ITEMS_MIN`. A validation is shorter.
const FOREIGN_PERIODS: u64 = 16;
const FOREIGN_ITEMS_MIN: u64 = 4_096;
/// Consecutive steps with the same foreign tensors, after which these belong to the step.
const SAME_FOREIGN_STEPS: u32 = 8;
/// Most layers of a model: an inner loop of at most this many is not mistaken for a step twice.
const INNER_LOOPS_MAX: u64 = 128;

/// A known period and the progress of the current step in it.
#[derive(Debug)]
pub(super) struct Track {
    period: Period,
    signature: u64,
    /// In the order of first occurrence.
    slots: Vec<Slot>,
    /// Slot of each key.
    places: KeyMap<u32>,
    /// Likely slot of the next tensor: steps mostly repeat their order. A hit avoids the hash
    /// table, whose lines are not in the processor's cache.
    next: usize,
    /// Tensors that the current step still expects.
    missing: usize,
    steps: u64,
    foreign_in_step: usize,
    foreign_before: usize,
    same_foreign_steps: u32,
    /// Foreign tensors minus own ones, never below zero.
    foreign_balance: u64,
    /// Number of completed steps when the balance last was zero.
    steps_at_zero: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    required: u32,
    seen: u32,
    is_anchor: bool,
}

/// A period was given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// Number of repeats required to accept it again.
    pub(super) repeats_wanted: u64,
}

impl Track {
    /// Tracks the period made of `items`; items flagged as new names occurred in it but are not
    /// part of it. `None` if no item is left.
    pub(super) fn new(items: impl Iterator<Item = (Item, bool)>, named: bool) -> Option<Self> {
        let mut period = Period {
            items: 0,
            bytes: 0,
            signature: 0,
            anchor: None,
            named,
            foreign: 0,
        };
        let mut slots: Vec<Slot> = Vec::new();
        let mut places: KeyMap<u32> = KeyMap::default();
        let mut signature = u64::from(named);
        let mut allreduces = Vec::new();
        for (item, new) in items {
            if named && new {
                period.foreign += 1;
                continue;
            }
            let key = item.key(named);
            let place = *places.entry(key).or_insert_with(|| {
                slots.push(Slot {
                    key,
                    ..Slot::default()
                });
                slots.len() as u32 - 1
            });
            slots[place as usize].required += 1;
            signature = signature.wrapping_add(mix(key, 2));
            period.items += 1;
            period.bytes += item.bytes;
            period.signature = period.signature.wrapping_add(item.signature());
            if item.allreduce {
                allreduces.push((item.bytes, key));
            }
        }
        // The largest allreduce that occurs once; the first of equal ones, so that all ranks choose
        // the same.
        let once = |key: &u64| slots[places[key] as usize].required == 1;
        let best = allreduces
            .into_iter()
            .rev()
            .max_by_key(|&(bytes, key)| (once(&key), bytes));
        if let Some((bytes, key)) = best {
            period.anchor = Some(bytes);
            slots[places[&key] as usize].is_anchor = true;
        }
        (period.items > 0).then_some(Self {
            period,
            signature,
            slots,
            places,
            next: 0,
            missing: period.items,
            steps: 0,
            foreign_in_step: 0,
            foreign_before: 0,
            same_foreign_steps: 0,
            foreign_balance: 0,
            steps_at_zero: 0,
        })
    }

    pub(super) fn period(&self) -> &Period {
        &self.period
    }

    /// Hash of the set of tensors.
    pub(super) fn signature(&self) -> u64 {
        self.signature
    }

    /// Processes the next tensor.
    pub(super) fn observe(&mut self, item: Item) -> Result<Observation, Lost> {
        let Some(place) = self.find(item.key(self.period.named)) else {
            return self.foreign();
        };
        let slot = &mut self.slots[place];
        slot.seen += 1;
        // By name, a tensor may be one step ahead of the others; anonymous, one too many means a
        // wrong count.
        let ahead = if self.period.named { 2 } else { 1 };
        if slot.seen > ahead * slot.required {
            let repeats_wanted = if self.period.named {
                0
            } else {
                (self.steps + 4).min(INNER_LOOPS_MAX)
            };
            return Err(Lost { repeats_wanted });
        }
        let anchor = slot.is_anchor && slot.seen.is_multiple_of(slot.required);
        if slot.seen <= slot.required {
            self.missing -= 1;
        }
        self.foreign_balance = self.foreign_balance.saturating_sub(1);
        if self.foreign_balance == 0 {
            self.steps_at_zero = self.steps;
        }
        let step_complete = self.missing == 0;
        if step_complete {
            self.complete()?;
        }
        Ok(Observation {
            step_complete,
            anchor,
            ..Observation::default()
        })
    }

    /// Index of the slot of the tensor with this key.
    fn find(&mut self, key: u64) -> Option<usize> {
        let place = match self.slots.get(self.next) {
            Some(slot) if slot.key == key => self.next,
            _ => *self.places.get(&key)? as usize,
        };
        self.next = if place + 1 < self.slots.len() {
            place + 1
        } else {
            0
        };
        Some(place)
    }

    fn foreign(&mut self) -> Result<Observation, Lost> {
        self.foreign_in_step += 1;
        self.foreign_balance += 1;
        if self.foreign_balance > FOREIGN_ITEMS_MIN.max(FOREIGN_PERIODS * self.period.items as u64)
        {
            // Steps were completed in the meantime: it was only a part of the step.
            let went_on = self.steps > self.steps_at_zero + 1;
            let repeats_wanted = if went_on { u64::MAX } else { 0 };
            return Err(Lost { repeats_wanted });
        }
        Ok(Observation {
            foreign: true,
            ..Observation::default()
        })
    }

    fn complete(&mut self) -> Result<(), Lost> {
        self.steps += 1;
        let mut ahead = 0;
        for slot in &mut self.slots {
            slot.seen -= slot.required;
            ahead += slot.seen as usize;
        }
        self.missing = self.period.items - ahead;
        let foreign = std::mem::take(&mut self.foreign_in_step);
        let same = foreign != self.period.foreign && foreign == self.foreign_before;
        self.same_foreign_steps = if same { self.same_foreign_steps + 1 } else { 0 };
        self.foreign_before = foreign;
        if self.same_foreign_steps >= SAME_FOREIGN_STEPS {
            return Err(Lost { repeats_wanted: 0 });
        }
        Ok(())
    }
}
