//! Bytes of hosts that wait on the disk of their gateway.

use super::*;

/// Limit of the gateways' disks in the test.
const LIMIT: u64 = 64 << 20;

/// The file with a directory for bytes that the link does not take, which is beside it.
fn with_spool(text: &str) -> String {
    text.replace("accept = \"early\"", "accept = \"early\"\nspool_dir = \".\"\nspool = \"64MiB\"")
}

impl Lab {
    /// Files in the directory of a gateway's configuration, which is that of its bytes too.
    fn files(&self, side: usize) -> Vec<PathBuf> {
        let config = self.pair.config(side);
        let directory = config.parent().unwrap();
        let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }
}

#[test]
fn a_host_hands_over_more_than_the_link_takes_and_every_byte_arrives() {
    let test = "a_host_hands_over_more_than_the_link_takes_and_every_byte_arrives";
    let Some(lab) = Lab::start_with(test, "uniform:0.005", |text| with_spool(&text)) else { return };
    let listener = lab.serve();
    let files = lab.files(0);
    let mut client = lab.connect(PORT);
    let (mut server, _) = accept(&listener);
    // More than all buffers between the hosts hold, while the server reads nothing.
    let sent = Random(40).bytes(40_000_000);
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    wait_until("the rest waits on disk", || lab.split(0).spooled_bytes > 8 << 20);
    assert_eq!(lab.split(0).spool_bytes, Some(LIMIT));
    assert_eq!(lab.files(0), files, "files on disk have no names");
    // Others are not held up.
    converse(&lab, &listener, 1_000_000, 41);
    let mut seen = Vec::new();
    server.read_to_end(&mut seen).unwrap();
    assert!(seen == sent, "{} of {} bytes", seen.len(), sent.len());
    wait_until("nothing waits", || lab.split(0).spooled_bytes == 0);
    assert!(lab.count(0, "bytes_spooled") > 8 << 20);
    assert_eq!([lab.count(0, "spool_failures"), lab.count(0, "reset_here")], [0, 0]);
    lab.pair.stop().unwrap();
}

#[test]
fn a_disk_whose_limit_is_reached_slows_the_host_and_loses_nothing() {
    let test = "a_disk_whose_limit_is_reached_slows_the_host_and_loses_nothing";
    let Some(lab) = Lab::start_with(test, "uniform:0", |text| with_spool(&text)) else { return };
    let listener = lab.serve();
    let mut client = lab.connect(PORT);
    let (mut server, _) = accept(&listener);
    let sent = Random(42).bytes(90_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        wait_until("the connection has its share of the disk", || lab.split(0).spooled_bytes >= LIMIT / 2);
        let mut seen = Vec::new();
        let mut part = vec![0; 1 << 20];
        while let Ok(bytes) = server.read(&mut part)
            && bytes > 0
        {
            seen.extend_from_slice(&part[..bytes]);
            assert!(lab.split(0).spooled_bytes <= LIMIT);
        }
        assert!(seen == sent, "{} of {} bytes", seen.len(), sent.len());
    });
    lab.pair.stop().unwrap();
}
