//! Recorded answers of the services, read by the client over real connections.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use membership::News;
use ricochet_core::{GroupId, NodeId};
use testkit::wait_until;

use super::backoff::Backoff;
use super::etcd::{Etcd, Lease};
use super::failure::Failure;
use super::http::{Endpoint, Line};
use super::kubernetes::{Kubernetes, SliceNews};
use super::link::Link;
use super::registrar::Registrar;
use super::watcher::Service;

/// A server that gives one recorded answer to each request, and keeps the requests.
struct Recorded {
    endpoint: Endpoint,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Recorded {
    fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers) = (Arc::clone(&requests), answers.iter().map(|&text| text.to_owned()));
        let answers: Vec<String> = answers.collect();
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                kept.lock().unwrap().push(request(&mut stream));
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { endpoint, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads a request with its body.
fn request(stream: &mut TcpStream) -> String {
    let (mut raw, mut piece) = (Vec::new(), [0; 1_024]);
    loop {
        let text = String::from_utf8_lossy(&raw).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return text,
            Ok(length) => raw.extend_from_slice(&piece[..length]),
        }
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// An answer without an end, as far as it has come.
fn chunks(lines: &[&str]) -> String {
    let chunk = |line: &&str| format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
    let chunks: String = lines.iter().map(chunk).collect();
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Reads all news of a stream.
fn read_all<S: Service>(
    service: &mut S,
    recorded: &Recorded,
    position: &str,
) -> Result<Vec<S::News>, Failure> {
    let link = Link::new("test");
    let mut stream = service.watch(&recorded.endpoint, position)?;
    let mut news = Vec::new();
    loop {
        match stream.next_line(Duration::from_secs(60))? {
            Line::Text(line) => news.extend(service.read(&line, position, &link)?),
            Line::Nothing => panic!("expected a line within a minute"),
            Line::End => return Ok(news),
        }
    }
}

/// An answer of etcd 3.4 to a request for all keys: that of this node, one of an unknown program, and one
/// with the key of another address.
const LIST: &str = r#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"12","raft_term":"2"},"kvs":[{"key":"L3UvbWVtYmVycy8xMC4wLjAuMTo3OTAw","create_revision":"5","mod_revision":"9","version":"2","value":"eyJ2ZXJzaW9uIjoxLCJpZCI6IjAwMDAwMGFiIiwibGlmZSI6NSwiYWRkcmVzcyI6IjEwLjAuMC4xOjc5MDAiLCJncm91cHMiOlsiMDAwMDAwMDAwMDAwMDAwMSJdfQ==","lease":"7587869134763467780"},{"key":"L3UvbWVtYmVycy9vdGhlcg==","create_revision":"6","mod_revision":"6","version":"1","value":"aGVsbG8="},{"key":"L3UvbWVtYmVycy8xMC4wLjAuOTo3OTAw","value":"eyJ2ZXJzaW9uIjoxLCJpZCI6IjAwMDAwMGFiIiwibGlmZSI6NSwiYWRkcmVzcyI6IjEwLjAuMC4xOjc5MDAiLCJncm91cHMiOltdfQ=="}],"count":"3"}"#;

#[test]
fn the_entries_in_etcd_are_listed_and_others_are_ignored_and_counted() {
    let recorded = Recorded::start(&[&ok(LIST)]);
    let link = Link::new("etcd");
    let found = Etcd::new("/u").list(&recorded.endpoint, &link).unwrap();
    let News::All(all) = found.all else { panic!("expected a list") };
    assert_eq!((found.position.as_str(), all.len(), link.status().unreadable), ("12", 1, 2));
    assert_eq!((all[0].id, all[0].address, all[0].life), (NodeId(0xab), address("10.0.0.1:7900"), 5));
    assert_eq!(*all[0].groups, [GroupId(1)]);
    let asked = recorded.requests().remove(0);
    assert!(asked.starts_with("POST /v3/kv/range HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked}");
    // `/u/members/` to `/u/members0`.
    assert!(
        asked.contains(r#""key":"L3UvbWVtYmVycy8=""#) && asked.contains(r#""range_end":"L3UvbWVtYmVyczA=""#)
    );
}

#[test]
fn the_changes_in_etcd_are_followed_from_the_list_on() {
    let created = r#"{"result":{"header":{"cluster_id":"1","member_id":"2","revision":"13","raft_term":"2"},"created":true}}"#;
    let changed = r#"{"result":{"header":{"revision":"14"},"events":[{"kv":{"key":"L3UvbWVtYmVycy8xMC4wLjAuMTo3OTAw","create_revision":"14","mod_revision":"14","version":"1","value":"eyJ2ZXJzaW9uIjoxLCJpZCI6IjAwMDAwMGFiIiwibGlmZSI6NSwiYWRkcmVzcyI6IjEwLjAuMC4xOjc5MDAiLCJncm91cHMiOltdfQ=="}},{"type":"DELETE","kv":{"key":"L3UvbWVtYmVycy8xMC4wLjAuOTo3OTAw","mod_revision":"15"}}]}}"#;
    let recorded = Recorded::start(&[&chunks(&[created, changed])]);
    let news = read_all(&mut Etcd::new("/u"), &recorded, "12").unwrap();
    assert_eq!(news.len(), 2);
    assert!(matches!(&news[0], News::Set(entry) if entry.address == address("10.0.0.1:7900")));
    assert_eq!(news[1], News::Gone(address("10.0.0.9:7900")));
    let asked = recorded.requests().remove(0);
    assert!(asked.contains(r#""start_revision":"13""#), "{asked}");
    assert!(asked.contains("\r\nGrpc-Metadata-hasleader: true\r\n"), "{asked}");
}

#[test]
fn forgotten_changes_and_a_server_that_began_from_nothing_are_noticed() {
    let compacted = r#"{"result":{"header":{"revision":"99"},"canceled":true,"compact_revision":"50"}}"#;
    let younger = r#"{"result":{"header":{"revision":"3"},"created":true}}"#;
    for line in [compacted, younger] {
        let recorded = Recorded::start(&[&chunks(&[line])]);
        let failure = read_all(&mut Etcd::new("/u"), &recorded, "12").unwrap_err();
        assert!(matches!(failure, Failure::Compacted), "{failure}");
    }
    for (line, said) in [
        (r#"{"result":{"canceled":true,"cancel_reason":"no permission"}}"#, "no permission"),
        (r#"{"error":{"grpc_code":14,"http_code":503,"message":"no leader"}}"#, "no leader"),
        ("<html>", "expected JSON"),
    ] {
        let recorded = Recorded::start(&[&chunks(&[line])]);
        let failure = read_all(&mut Etcd::new("/u"), &recorded, "12").unwrap_err().to_string();
        assert!(failure.contains(said), "{failure}");
    }
}

#[test]
fn a_lease_that_etcd_does_not_know_is_told_apart_from_other_failures() {
    let gone = r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#;
    let refused = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{gone}", gone.len());
    let down = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
    let recorded = Recorded::start(&[
        &ok(r#"{"header":{"revision":"3"},"ID":"7587869134763467783","TTL":"10"}"#),
        &ok(r#"{"result":{"header":{"revision":"3"},"ID":"7587869134763467783","TTL":"10"}}"#),
        &ok(r#"{"result":{"header":{"revision":"3"},"ID":"7587869134763467783"}}"#),
        &refused,
        down,
        &ok("{}"),
    ]);
    let (etcd, endpoint) = (Etcd::new("/u"), &recorded.endpoint);
    let lease: Lease = etcd.grant(endpoint, 10).unwrap();
    etcd.keep_alive(endpoint, &lease).unwrap();
    assert!(matches!(etcd.keep_alive(endpoint, &lease), Err(Failure::NoLease)));
    let put = || etcd.put(endpoint, &lease, address("10.0.0.1:7900"), "{}");
    assert!(matches!(put(), Err(Failure::NoLease)));
    let why = put().unwrap_err().to_string();
    assert!(why.contains("saw 503: busy"), "{why}");
    put().unwrap();
    let asked = recorded.requests();
    assert!(asked[0].contains("/v3/lease/grant") && asked[0].contains(r#""TTL":"10""#), "{}", asked[0]);
    assert!(asked[1].contains(r#""ID":"7587869134763467783""#), "{}", asked[1]);
    assert!(asked[5].contains(r#""key":"L3UvbWVtYmVycy8xMC4wLjAuMTo3OTAw""#), "{}", asked[5]);
}

#[test]
fn an_entry_that_etcd_lacks_is_stored_although_the_first_attempt_fails() {
    let granted = ok(r#"{"ID":"7587869134763467783","TTL":"3000"}"#);
    let down = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
    let recorded = Recorded::start(&[&granted, &ok("{}"), down, &ok("{}")]);
    let link = Arc::new(Link::new("etcd"));
    link.set_entry("one".to_owned());
    let (of_thread, endpoints) = (Arc::clone(&link), [recorded.endpoint.clone()]);
    std::thread::spawn(move || {
        let registrar = Registrar::new(Etcd::new("/u"), &endpoints, address("10.0.0.1:7900"), 3_000);
        registrar.run(&of_thread, Backoff::new(1));
    });
    wait_until("the node is registered", || link.status().registered);
    link.on_missing();
    wait_until("the entry is stored again", || recorded.requests().len() == 4);
    link.close();
    assert!(recorded.requests()[3].contains("/v3/kv/put"), "{:?}", recorded.requests());
}

#[test]
fn a_server_that_breaks_off_or_speaks_another_protocol_is_a_failure() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap()
    };
    let why = Etcd::new("/u").grant(&nobody, 10).unwrap_err().to_string();
    assert!(why.starts_with("cannot connect to http://127.0.0.1:"), "{why}");
    for (answer, said) in [
        ("", "saw the end of the connection"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "saw another protocol"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "saw the end of the connection"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "expected the number of a lease"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "expected JSON"),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 Forbidden\r\n\r\nno", "saw 403: no"),
    ] {
        let recorded = Recorded::start(&[answer]);
        let why = Etcd::new("/u").grant(&recorded.endpoint, 10).unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
    }
}

/// A slice of endpoints as the API of Kubernetes 1.31 has it.
fn slice(name: &str, version: u32, addresses: &str, ports: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","generateName":"undrop-","namespace":"default","uid":"6a2c","resourceVersion":"{version}","labels":{{"kubernetes.io/service-name":"undrop"}}}},"addressType":"IPv4","endpoints":[{{"addresses":[{addresses}],"conditions":{{"ready":false,"serving":false,"terminating":false}},"targetRef":{{"kind":"Pod","namespace":"default","name":"undrop-0"}},"nodeName":"a"}}],"ports":[{ports}]}}"#
    )
}

const PORT: &str = r#"{"name":"","port":7900,"protocol":"UDP"}"#;
const METRICS: &str = r#"{"name":"metrics","port":9100,"protocol":"TCP"}"#;
const SECOND: &str = r#"{"name":"dns","port":53,"protocol":"UDP"}"#;
const NAMED: &str = r#"{"name":"undrop","port":7901,"protocol":"UDP"}"#;

#[test]
fn the_endpoints_of_a_service_are_listed_with_their_port() {
    let slices = [
        slice("undrop-a", 7, r#""10.1.0.1","10.1.0.2""#, &format!("{METRICS},{PORT}")),
        slice("undrop-b", 8, r#""10.1.0.3""#, &format!("{SECOND},{NAMED}")),
        slice("undrop-c", 9, r#""10.1.0.4""#, METRICS),
        r#"{"metadata":{"name":"undrop-d"},"addressType":"IPv4","endpoints":null,"ports":null}"#.to_owned(),
    ];
    let list = format!(
        r#"{{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{{"resourceVersion":"1042"}},"items":[{}]}}"#,
        slices.join(",")
    );
    let recorded = Recorded::start(&[&ok(&list)]);
    let link = Link::new("Kubernetes");
    let found = Kubernetes::new("default", "undrop").list(&recorded.endpoint, &link).unwrap();
    let expected = [
        ("undrop-a", vec![address("10.1.0.1:7900"), address("10.1.0.2:7900")]),
        ("undrop-b", vec![address("10.1.0.3:7901")]),
        ("undrop-d", vec![]),
    ];
    let expected = expected.map(|(name, addresses)| (name.to_owned(), addresses)).to_vec();
    assert_eq!((found.all, found.position.as_str()), (SliceNews::All(expected), "1042"));
    assert_eq!(link.status().unreadable, 1, "a slice without a port of UDP");
    let asked = recorded.requests().remove(0);
    let path = "GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                ?labelSelector=kubernetes.io%2Fservice-name%3Dundrop HTTP/1.1\r\n";
    assert!(asked.starts_with(path), "{asked}");
}

#[test]
fn the_changes_of_endpoints_are_followed_until_the_server_has_forgotten_them() {
    let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let one = slice("undrop-a", 1043, r#""10.1.0.1""#, PORT);
    let lines = [
        event("MODIFIED", &one),
        event("BOOKMARK", r#"{"metadata":{"resourceVersion":"1050"}}"#),
        event("DELETED", &one),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let recorded = Recorded::start(&[&chunks(&lines)]);
    let mut kubernetes = Kubernetes::new("default", "undrop");
    let news = read_all(&mut kubernetes, &recorded, "1042").unwrap();
    let set = SliceNews::Set("undrop-a".to_owned(), vec![address("10.1.0.1:7900")]);
    assert_eq!(news, [set, SliceNews::Gone("undrop-a".to_owned())]);
    let asked = recorded.requests().remove(0);
    assert!(asked.contains("&watch=true&allowWatchBookmarks=true&resourceVersion=1042 HTTP/1.1"), "{asked}");

    let gone = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version: 1042 (2000)","reason":"Expired","code":410}}"#;
    let refused = "HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\n{}";
    for answer in [&chunks(&[gone]), refused] {
        let failure = read_all(&mut kubernetes, &Recorded::start(&[answer]), "1042").unwrap_err();
        assert!(matches!(failure, Failure::Compacted), "{failure}");
    }
    let broken = r#"{"type":"ERROR","object":{"message":"etcd leader changed","code":500}}"#;
    let failure = read_all(&mut kubernetes, &Recorded::start(&[&chunks(&[broken])]), "1042").unwrap_err();
    assert!(failure.to_string().contains("etcd leader changed"), "{failure}");
    let injected = kubernetes.watch(&recorded.endpoint, "1 HTTP/1.1\r\nX: y").unwrap_err().to_string();
    assert!(injected.contains("expected a version of letters and digits"), "{injected}");
}
