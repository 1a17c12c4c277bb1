use crate::{parse, run};

fn said(script: &str) -> Result<(), String> {
    run(&parse("test", script)?)
}

/// Nothing is ever counted under a name that there is not: such a line would hold whatever happens.
#[test]
fn a_counter_that_there_is_not_is_a_mistake() {
    assert_eq!(said("+0 counter(TcpOutRsts) = 0\n+0 counter(DiscardTcpPaws) = 0"), Ok(()));
    for name in ["TcpOutRst", "DiscardTcpPAWS", "TcpPaws", ""] {
        let said = said(&format!("+0 counter({name}) = 0")).expect_err(name);
        assert!(said.contains("there is no counter"), "{said}");
    }
}
