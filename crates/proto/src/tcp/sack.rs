//! sack
