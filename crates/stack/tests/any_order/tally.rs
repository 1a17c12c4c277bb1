//! Owns what happened, in figures: a test in which nothing happens passes, too.

macro_rules! tally {
    ($($name:ident: $what:literal,)*) => {
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct Tally { $(#[doc = $what] pub $name: u64),* }

        impl Tally {
            pub fn add(&mut self, other: &Tally) {
                $(self.$name += other.$name;)*
            }

            /// What has not happened.
            pub fn never_seen(&self) -> Vec<&'static str> {
                [$((self.$name, $what)),*].into_iter().filter(|(n, _)| *n == 0).map(|(_, what)| what).collect()
            }
        }
    };
}

tally! {
    connects: "a connect",
    accepts: "an accept",
    heard: "a byte that was heard",
    waits: "a write that had to wait",
    limits: "a buffer that was told its size",
    refused: "a connect that was refused",
    called_off: "a connect that was called off",
    reset: "a connection that was reset",
    untaken: "a listener closed with connections that nobody had taken",
    moves: "a bucket that moves",
    asked: "a segment that a former owner was asked about",
    cookies: "a connection by a cookie",
    starved: "a lane that waited for room among who is to be accepted",
    datagrams: "a datagram that came",
    fragmented: "a datagram that was put together",
}
