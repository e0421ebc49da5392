//! The spool: the state folders, and every way a file moves through them.
//!
//! Meaning is added here to the bare moves of [`crate::durable`]: which folder is which state,
//! how a submission leaves `pending/`, how a decided record travels, what a refused file
//! becomes, and what a restart finds. Who decides is [`crate::policy`]; who sequences is
//! [`crate::engine`].

mod batch;
pub mod change;
pub mod claim;
pub mod commit;
pub mod foreign;
pub mod layout;
pub mod look;
mod place;
pub mod recover;
pub mod reject;
mod reserve;
pub mod scan;
pub mod spare;
pub mod told;
