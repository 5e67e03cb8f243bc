//! Tasks of an engine and the commands for it, on the thread that drives them at the time.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use ronde_net::{Mesh, NetError};

use super::{LAST_WORDS, SLEEP_MAX};
use crate::hosts::world::{Carrier, World};

/// Task of an engine; polled until it is ready.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;
/// Creates a task. It captures nothing of a world, because it comes from another thread.
pub(super) type Work = Box<dyn FnOnce(&Rc<World>) -> Task + Send>;
/// Last call of an engine.
pub(super) type Last = Box<dyn FnOnce(&World) + Send>;

pub(super) enum Command {
    Run(Work),
    /// Poll the tasks: something that a task reads has changed.
    Look,
    End(Last),
}

/// State of an engine: its world, its tasks, and the commands for it.
pub(super) struct Tasks {
    world: Rc<World>,
    tasks: Vec<Task>,
    commands: Receiver<Command>,
    /// The last call, if it was requested.
    last: Option<Last>,
}

impl Tasks {
    pub(super) fn new(world: World, commands: Receiver<Command>) -> Self {
        Self {
            world: Rc::new(world),
            tasks: Vec::new(),
            commands,
            last: None,
        }
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn commands(&self) -> &Receiver<Command> {
        &self.commands
    }

    /// Whether the engine is to end: by command, or because nobody can send commands any more.
    pub(super) fn ends(&self) -> bool {
        self.last.is_some()
    }

    pub(super) fn take(&mut self, command: Command) {
        match command {
            Command::Run(work) => self.tasks.push(work(&self.world)),
            Command::Look => {}
            Command::End(last) => self.last = Some(last),
        }
    }

    /// Carries out all commands that have arrived, until the one that ends the engine; returns
    /// whether there were any.
    pub(super) fn take_commands(&mut self) -> bool {
        let mut any = false;
        while !self.ends() {
            match self.commands.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => return any,
                Err(TryRecvError::Disconnected) => self.last = Some(Box::new(|_| {})),
            }
            any = true;
        }
        any
    }

    /// Polls all tasks; returns whether one has ended.
    pub(super) fn poll(&mut self) -> bool {
        let before = self.tasks.len();
        let mut context = Context::from_waker(Waker::noop());
        self.tasks
            .retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        self.tasks.len() < before
    }

    /// Sends what the tasks have begun to send over TCP, as far as that does not block.
    pub(super) fn flush(&self) {
        if let Carrier::Tcp(mesh) = self.world.carrier() {
            mesh.flush();
        }
    }

    /// Sends and receives over TCP, after waiting for at most `timeout`; returns whether anything
    /// was sent or received. Nothing happens over MPI.
    pub(super) fn turn(&self, timeout: Duration) -> bool {
        self.moved(|mesh| mesh.turn(Some(timeout)))
    }

    /// Likewise without waiting, for a thread that spins.
    pub(super) fn glance(&self) -> bool {
        self.moved(Mesh::glance)
    }

    /// Whether a turn over TCP left something to be read.
    pub(super) fn has_more(&self) -> bool {
        match self.world.carrier() {
            Carrier::Tcp(mesh) => mesh.has_more(),
            Carrier::Mpi(_) => false,
        }
    }

    fn moved(&self, turn: impl FnOnce(&Mesh) -> Result<bool, NetError>) -> bool {
        let Carrier::Tcp(mesh) = self.world.carrier() else {
            return false;
        };
        match turn(mesh) {
            Ok(has_moved) => has_moved,
            Err(NetError::System { .. }) => {
                // Other errors are errors of the operations. This one may come back at once.
                std::thread::sleep(SLEEP_MAX);
                false
            }
            Err(_) => false,
        }
    }

    /// Ends the engine with its last call, when its tasks have ended or have had [`LAST_WORDS`] for
    /// it.
    pub(super) fn end(mut self) {
        let began = Instant::now();
        while !self.tasks.is_empty() && began.elapsed() < LAST_WORDS {
            self.turn(super::SLEEP_MIN);
            self.poll();
            std::thread::yield_now();
        }
        self.tasks.clear(); // requests of MPI go on
        if let Some(last) = self.last.take() {
            last(&self.world);
        }
    }
}
