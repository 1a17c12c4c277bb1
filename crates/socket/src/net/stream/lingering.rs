//! Owns the drop that waits: `SO_LINGER` with a time.

use super::TcpStream;
use laneway_stack::proto::tcp::State;
use laneway_stack::threads::words::SHUT_WRITE;
use std::time::{Duration, Instant};

/// It is asked so often at first, and less and less often then.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_LAST: Duration = Duration::from_millis(10);

impl TcpStream {
    /// Waits until the peer has acknowledged all that was sent and the FIN behind it, so long at the most. Who has left bytes unread will be reset, and
    /// waits for nothing.
    #[cold]
    pub(super) fn linger_for(&self, time: Duration) {
        let until = Instant::now() + time;
        if self.talk().readable() > 0 {
            return;
        }
        self.desk.shut(self.talk(), SHUT_WRITE);
        let mut pause = PAUSE_FIRST;
        while let Ok(info) = self.info_until(until)
            && !is_acknowledged(info.state)
        {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(PAUSE_LAST);
        }
    }
}

/// The FIN was, and with it whatever was before it.
fn is_acknowledged(state: State) -> bool {
    matches!(state, State::FinWait2 | State::TimeWait | State::Closed)
}
