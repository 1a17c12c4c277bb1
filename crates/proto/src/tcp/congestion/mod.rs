//! congestion/mod
