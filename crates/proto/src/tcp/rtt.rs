//! rtt
