//! A static HTTP/1.1 server that lives on the lanes.
//!
//! [`server`] is the application, one per lane; [`request`] understands what is asked for; [`respond`] decides the answer;
//! [`files`] finds files and lets nobody out of their directory; [`listing`] shows what is in one; [`warm`] reads from disks
//! what of large files is not in memory, so that no lane waits for that; [`patience`] is how long the server waits for its
//! peers. For names, directories and small files a lane does wait, once: after that they are in memory.

pub mod files;
pub mod listing;
pub mod mime;
pub mod patience;
pub mod range;
pub mod request;
pub mod respond;
pub mod server;
pub mod warm;

#[cfg(test)]
mod tests;
