//! Owns what tells whether a socket is ready, for programs that then try.

/// The methods of tokio's sockets that wait until a socket is ready, for one that has a registration.
macro_rules! tells_readiness {
    ($socket:ident) => {
        impl $socket {
            /// Waits until the socket is ready for something of `interest`, and says for what. A call that is tried then may find
            /// nothing nevertheless: another task was faster, or there is room to send and no memory. Of interests only `READABLE`
            /// and `WRITABLE` are known; with neither: `InvalidInput`.
            pub async fn ready(&self, interest: ::tokio::io::Interest) -> ::std::io::Result<::tokio::io::Ready> {
                self.registration.ready(interest).await
            }

            /// Waits until there is something to read, or never will be. Any number of tasks may wait.
            pub async fn readable(&self) -> ::std::io::Result<()> {
                self.ready(::tokio::io::Interest::READABLE).await.map(drop)
            }

            /// Waits until there is room for a good part of what may be queued, or nothing can be sent any more. Any number of tasks may
            /// wait.
            pub async fn writable(&self) -> ::std::io::Result<()> {
                self.ready(::tokio::io::Interest::WRITABLE).await.map(drop)
            }

            /// As [`readable`](Self::readable), or has the task woken when it is. Of the tasks that ask, the last is.
            pub fn poll_read_ready(
                &self,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                self.registration.poll_ready(cx, $crate::tokio::waiters::Side::Reader)
            }

            /// As [`writable`](Self::writable), or has the task woken when it is. Of the tasks that ask, the last is.
            pub fn poll_write_ready(
                &self,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                self.registration.poll_ready(cx, $crate::tokio::waiters::Side::Writer)
            }
        }
    };
}
pub(super) use tells_readiness;
