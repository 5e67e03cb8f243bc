//! `ronde timeline`: reads recorded timelines and says where the time goes.

pub(crate) mod html;
