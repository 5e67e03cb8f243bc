//! The live page of a build with the feature `dash`: recorder, feed, server and commands.

mod feed;
mod handler;
mod page;
mod ranks;
mod recorder;
mod shared;
mod tuner;

pub(super) use page::open;
pub(crate) use recorder::Recorder;
