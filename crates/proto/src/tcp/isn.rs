//! isn
