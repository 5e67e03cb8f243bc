//! Truth with which tuners are judged: jobs whose step time is known for every setting.

mod foreign;
mod model;
mod network;
mod recorded;
mod setting;
mod simulation;
mod surface;
mod surfaces;

pub(crate) use foreign::{Foreign, Weather};
pub(crate) use network::Effects;
pub(crate) use recorded::Block;
pub(crate) use setting::{
    CYCLE_LEAST_MS, CYCLE_LEVELS, CYCLE_MOST_MS, FUSION_LEAST, FUSION_LEVELS, FUSION_MOST, MIB,
    Setting,
};
pub(crate) use simulation::{Draws, Simulation, Unwatched, Watch};
pub(crate) use surface::{Source, Surface};
pub(crate) use surfaces::{Truth, label, surfaces};
