//! cookie
