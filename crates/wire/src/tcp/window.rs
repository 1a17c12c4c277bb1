//! Owns the window: as the wire says it, as it is meant, and the scale that joins the two (RFC 7323 section 2).

use core::ops::{Shl, Shr};

/// The exponent by which a window on the wire is scaled, 0 to 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WindowScale(u8);

impl WindowScale {
    /// The largest.
    pub const MAX: WindowScale = WindowScale(14);
    /// No scaling.
    pub const NONE: WindowScale = WindowScale(0);

    /// From the byte of the option.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# If a Window Scale option is received with a shift.cnt value larger than 14, the TCP SHOULD log the error but
    //# MUST use 14 instead of the specified value.
    #[inline]
    pub const fn new(shift: u8) -> Self {
        if shift > 14 { Self::MAX } else { WindowScale(shift) }
    }

    /// The exponent.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// A window as the 16 bits of the header say it: it means nothing until it meets its scale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UnscaledWindow(u16);

impl UnscaledWindow {
    /// From the field of the header.
    #[inline]
    pub const fn new(raw: u16) -> Self {
        UnscaledWindow(raw)
    }

    /// As the field of the header.
    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }
}

/// A window in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Window(u32);

impl Window {
    /// The largest window that can be said, 65535 * 2^14 bytes.
    pub const MAX: Window = Window(65535 << 14);

    /// A window of this many bytes; what is beyond [`Window::MAX`] cannot be said and is cut.
    #[inline]
    pub const fn new(bytes: u32) -> Self {
        if bytes > Self::MAX.0 { Self::MAX } else { Window(bytes) }
    }

    /// In bytes.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Shl<WindowScale> for UnscaledWindow {
    type Output = Window;
    #[inline]
    fn shl(self, scale: WindowScale) -> Window {
        Window(u32::from(self.0) << scale.0)
    }
}

/// Rounds down, so that a peer never hears of more than there is, and saturates at 65535.
impl Shr<WindowScale> for Window {
    type Output = UnscaledWindow;
    #[inline]
    fn shr(self, scale: WindowScale) -> UnscaledWindow {
        UnscaledWindow((self.0 >> scale.0).min(0xffff) as u16)
    }
}
