//! Owns the stack that a command looks at again and again: at whole intervals, and the same one each time.

use crate::ask::{Which, hello};
use crate::failure::Failure;
use crate::life::Life;
use crate::pace::Pace;
use laneway::control::Client;
use std::time::{Duration, Instant};

/// A stack, and when to look at it.
pub struct Again<'a> {
    which: &'a Which,
    client: Client,
    life: Life,
    pace: Pace,
}

impl<'a> Again<'a> {
    /// The first look is now.
    pub fn begin(which: &'a Which, interval: Duration) -> Result<Self, Failure> {
        let mut client = which.connect()?;
        let life = Life::of(&hello(&mut client)?);
        Ok(Again { which, client, life, pace: Pace::new(interval, Instant::now()) })
    }

    /// Who answers.
    pub fn now(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Who answers when the time of the next look has come. What another stack has counted is no further than what this one had.
    pub fn next(&mut self) -> Result<&mut Client, Failure> {
        std::thread::sleep(self.pace.wait(Instant::now()));
        if self.pace.look(Instant::now()) {
            self.client = self.which.connect()?;
            if !self.life.is(&Life::of(&hello(&mut self.client)?)) {
                return Err(Failure::Failed("another stack answers now: look again".into()));
            }
        }
        Ok(&mut self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// Who looks once a minute connects each time, and the server may have been started anew in between.
    #[test]
    fn counters_of_two_stacks_are_not_compared() {
        let socket = std::env::temp_dir().join(format!("laneway-again-{}", std::process::id()));
        let listener = UnixListener::bind(&socket).expect("a socket");
        let ages = [500_000, 500_000, 4_000];
        let stack = std::thread::spawn(move || {
            for age in ages {
                let (mut client, _) = listener.accept().expect("somebody asks");
                BufReader::new(&client).read_line(&mut String::new()).expect("a question");
                let hello = format!(
                    r#"{{"laneway":"0","protocol":1,"pid":1,"device":"d","lanes":1,"uptime_ms":{age},"sharing":"lane"}}"#
                );
                client.write_all(format!("{hello}\n{{\"end\":true,\"rows\":1}}\n").as_bytes()).expect("it is read");
            }
        });
        let which = Which { name: None, control: Some(socket.clone()) };
        let interval = Duration::from_millis(1);
        let mut again = Again::begin(&which, interval).expect("it answers");
        let looked_a_minute_ago = || Pace::new(interval, Instant::now() - Duration::from_secs(60));
        again.pace = looked_a_minute_ago();
        assert!(again.next().is_ok(), "the same stack");
        again.pace = looked_a_minute_ago();
        let refused = again.next().err().map(|failure| (failure.code(), failure.to_string()));
        assert_eq!(refused, Some((1, "another stack answers now: look again".to_owned())));
        stack.join().expect("somebody has asked each time");
        std::fs::remove_file(&socket).expect("it is ours");
    }
}
