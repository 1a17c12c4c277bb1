use super::Config;

#[test]
fn the_scale_is_the_smallest_that_can_say_the_largest_window() {
    let scale = |most: u32| Config { tcp_rmem: (4_096.min(most), most), ..Config::default() }.receive_scale();
    let edges = (0..17).flat_map(|shift| [65_534u64, 65_535, 65_536].map(|unit| unit << shift));
    for most in edges.chain([0, 1, 6_291_456, u32::MAX.into()]).filter_map(|most| u32::try_from(most).ok()) {
        let expected = (0..14).find(|scale| 65_535u64 << scale >= u64::from(most)).unwrap_or(14);
        assert_eq!(scale(most), expected, "for a buffer of {most} bytes");
    }
    assert_eq!(Config { tcp_window_scaling: false, ..Config::default() }.receive_scale(), 0);
}

#[test]
fn no_buffer_is_larger_than_what_is_lent() {
    let bounded = Config { tcp_rmem: (16 << 20, 32 << 20), tcp_wmem: u32::MAX, ..Config::default() }.bounded();
    assert_eq!((bounded.tcp_rmem, bounded.tcp_wmem), ((8 << 20, 8 << 20), 8 << 20));
    let default = Config::default().bounded();
    assert_eq!((default.tcp_rmem, default.tcp_wmem), (Config::default().tcp_rmem, Config::default().tcp_wmem));
}
