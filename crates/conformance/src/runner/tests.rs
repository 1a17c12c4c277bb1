use crate::{parse, run};

fn said(script: &str) -> Result<(), String> {
    run(&parse("test", script)?)
}

const OPEN: &str = "\
+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss 1460>
+0 > S. 0:0(0) ack 1 <...>
+0 < . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 4
";

/// Nothing is ever counted under a name that there is not: such a line would hold whatever happens.
#[test]
fn a_counter_that_there_is_not_is_a_mistake() {
    assert_eq!(said("+0 counter(TcpOutRsts) = 0\n+0 counter(DiscardTcpPaws) = 0"), Ok(()));
    for name in ["TcpOutRst", "DiscardTcpPAWS", "TcpPaws", ""] {
        let said = said(&format!("+0 counter({name}) = 0")).expect_err(name);
        assert!(said.contains("there is no counter"), "{said}");
    }
}

/// An answer that is written is compared, also of calls that have only one.
#[test]
fn a_wrong_answer_is_a_mistake_whatever_the_call() {
    for call in ["bind(3, ..., ...) = -1 EADDRINUSE", "idle() = 1", "anew() = 1"] {
        let said = said(&format!("+0 {call}")).expect_err(call);
        assert!(said.contains("wrong answer"), "{said}");
    }
    let connect = |result: &str| said(&format!("+0 connect(4, ..., ...) = {result}\n+0 > S 0:0(0) <...>"));
    assert_eq!([connect("0"), connect("-1 EINPROGRESS (Operation now in progress)")], [Ok(()), Ok(())]);
    for result in ["7", "-1 ECONNREFUSED"] {
        assert!(connect(result).expect_err(result).contains("wrong answer"));
    }
}

#[test]
fn a_flag_of_send_that_there_is_not_is_a_mistake() {
    let send = |flag: &str| said(&format!("{OPEN}+0 send(4, ..., 10, {flag}) = 10\n+0 > P. 1:11(10) ack 1"));
    assert_eq!(send("0"), Ok(()));
    assert!(send("MSG_00B").expect_err("no such flag").contains("MSG_OOB and MSG_MORE"));
}
