//! Owns a small server of memcached's text protocol, and a client of it that asks again as soon as it is answered: the work of
//! wall S5, and of `laneway-lab memcached` for clients of other people's making.

pub mod client;
pub mod protocol;
pub mod server;
pub mod store;

use crate::bench::crew::{Load, Work};
use client::KvClient;
use server::KvServer;
use std::sync::Arc;
use store::Store;

/// Keys of the closed loop.
pub const KEYS: u64 = 1_024;

/// A key's name.
pub fn key(number: u64) -> String {
    format!("memtier-{:08}", number % KEYS)
}

/// A key's value, always the same: 32 bytes, as memtier's are by default.
pub fn value(number: u64) -> String {
    format!("value-of-{:08}-0123456789abcd.", number % KEYS)
}

/// `gets` reads for every write.
#[derive(Clone)]
pub struct Kv {
    pub gets: u64,
}

impl Work for Kv {
    type Server = KvServer;
    type Client = KvClient;

    /// Each lane has a store of its own, with every key in it: what lanes share here shall be routes and nothing else.
    fn server(&self) -> KvServer {
        let store = Store::new(1 << 22);
        for number in 0..KEYS {
            store.fill(key(number).as_bytes(), value(number).as_bytes());
        }
        KvServer::new(Arc::new(store))
    }

    fn client(&self, load: Load) -> KvClient {
        KvClient::new(load, self.gets)
    }
}
