//! Construction of a cycle from its parts.

use std::collections::HashMap;
use std::sync::Arc;

use super::clocks::Clocks;
use super::groups::Groups;
use super::hold::Holding;
use super::{Cycle, device, execute, plan};
use crate::clock::{Nanos, Reference};
use crate::collective::Collective;
use crate::collective::asynchronous::OpenDevice;
use crate::fusion::Plan;
use crate::negotiation::block::attached_words;
use crate::negotiation::{Agreement, Block, Coordinator, Details, ResponseCache};
use crate::observer::Observer;
use crate::queue::TensorQueue;
use crate::settings_cell::SettingsSource;
use crate::transport::Transport;

/// The parts of a cycle.
pub(crate) struct Parts {
    /// The process set: ranks of the job, ascending.
    pub(crate) members: Arc<[usize]>,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) collective: Box<dyn Collective>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) queue: Arc<TensorQueue>,
    pub(crate) cache: ResponseCache,
    /// Rank 0's clock, for all process sets of the rank.
    pub(crate) reference: Arc<Reference>,
    /// Whether this is the set of all ranks, which compares the clocks.
    pub(crate) is_world: bool,
    /// Source of changed settings.
    pub(crate) settings: SettingsSource,
    /// Whether a cycle may start before the cycle time has passed.
    pub(crate) early: bool,
    /// Opens the device of tensors in device memory.
    pub(crate) device: Arc<dyn OpenDevice>,
}

impl Cycle {
    /// Makes a cycle that has not run yet.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            members,
            transport,
            collective,
            observer,
            queue,
            cache,
            reference,
            is_world,
            settings,
            early,
            device,
        } = parts;
        let compares = transport.size() > 1 && !transport.shares_clock();
        let clocks = Clocks::new(reference, is_world && compares && transport.rank() == 0);
        let coordinator = (transport.rank() == 0).then(|| Coordinator::new(Arc::clone(&members)));
        // Without a common clock there are other hosts, whose ranks use the times of this one.
        let reads_times = coordinator.is_some() || !transport.shares_clock();
        let agreed = Agreement::new(transport.size(), reads_times);
        let block = Block {
            attached: vec![0; attached_words(transport.size())],
            ..Block::new(0)
        };
        Self {
            launches: device::Launches::new(device, Arc::clone(&queue)),
            members,
            transport,
            collective,
            observer,
            queue,
            early,
            number: 0,
            began: Nanos(0),
            paced_from: None,
            holding: Holding::default(),
            between_steps: false,
            settings: settings.begin(),
            source: settings,
            cache,
            coordinator,
            block,
            agreed,
            is_attached: false,
            details: Details::default(),
            reports_stalls: false,
            next_stall_check: Nanos(0),
            hits: Vec::new(),
            hits_held: 0,
            misses: HashMap::new(),
            unsent: Vec::new(),
            joined: false,
            awaits_joins: false,
            all_joined_at: None,
            groups: Groups::default(),
            clocks,
            commands: Vec::new(),
            agreed_commands: Vec::new(),
            incoming: Vec::new(),
            step_times: Vec::new(),
            ready: Vec::new(),
            packing: plan::Packing::default(),
            plan: Plan::default(),
            load: execute::Load::default(),
            frame: Vec::new(),
            frames: Vec::new(),
            ticks: Vec::new(),
            ended: None,
        }
    }
}
