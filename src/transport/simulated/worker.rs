//! A worker of a simulated rank: an agent that executes its tasks one after another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::World;
use crate::sync::lock;

/// Worker thread of a simulated rank. When dropped, it completes its pending work and ends.
pub(crate) struct SimulatedWorker {
    world: Arc<World>,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Box<dyn FnOnce() + Send>>,
    is_closed: bool,
    has_ended: bool,
}

impl SimulatedWorker {
    /// Starts the agent, of `rank`.
    pub(crate) fn start(world: &Arc<World>, rank: usize, name: String) -> Self {
        let queue = Arc::<Mutex<Queue>>::default();
        let (of_agent, of_world) = (Arc::clone(&queue), Arc::clone(world));
        let live = move || {
            loop {
                let awaited = Arc::clone(&of_agent);
                of_world.wait("for work", None, move |_| {
                    let queue = lock(&awaited);
                    queue.is_closed || !queue.work.is_empty()
                });
                let work = lock(&of_agent).work.pop_front();
                match work {
                    Some(work) => work(),
                    None => break,
                }
            }
            lock(&of_agent).has_ended = true;
        };
        world.spawn(rank, name, live);
        let world = Arc::clone(world);
        Self { world, queue }
    }

    /// Adds something to be done.
    pub(crate) fn put(&self, work: impl FnOnce() + Send + 'static) {
        lock(&self.queue).work.push_back(Box::new(work));
    }

    /// Waits, as another agent, until all is done; not if the caller vanishes.
    pub(crate) fn join(&self) {
        lock(&self.queue).is_closed = true;
        if self.world.is_inside() {
            let queue = Arc::clone(&self.queue);
            self.world
                .wait("for a worker", None, move |_| lock(&queue).has_ended);
        }
    }
}

impl Drop for SimulatedWorker {
    fn drop(&mut self) {
        lock(&self.queue).is_closed = true;
    }
}
