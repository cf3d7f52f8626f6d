//! Nodes that have the others' addresses from a recorded API of Kubernetes.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Condvar, Mutex};

use netlab::Namespace;
use nix::sys::socket::{Shutdown, shutdown};
use testkit::wait_until;

use super::{gone, is_reached, with_members};
use crate::common::{Lan, meet, numbers};
use ricochet::{Builder, Config, Node, Subscription};

/// Behaviour of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Answers,
    /// Watches end with an error: the server has forgotten old versions.
    Forgets,
    /// Connections are closed at once.
    Away,
}

struct State {
    mode: Mode,
    /// Hosts that are pods of the service.
    pods: Vec<u8>,
    version: u32,
}

/// The API, with answers as version 1.31 gives them.
#[derive(Clone)]
struct Api(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    listener: TcpListener,
}

impl Api {
    fn start(host: &Namespace, pods: &[u8]) -> Self {
        let state = State { mode: Mode::Answers, pods: pods.to_vec(), version: 1_042 };
        let listener = host.run(|| TcpListener::bind("0.0.0.0:8001")).unwrap();
        let api = Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), listener }));
        let serving = api.clone();
        std::thread::spawn(move || {
            // Until the listener is shut down.
            while let Ok((client, _)) = serving.0.listener.accept() {
                let serving = serving.clone();
                std::thread::spawn(move || drop(serving.answer(client)));
            }
        });
        api
    }

    fn end(&self) {
        self.change(Mode::Away, &[]);
        shutdown(self.0.listener.as_raw_fd(), Shutdown::Both).unwrap();
    }

    fn change(&self, mode: Mode, pods: &[u8]) {
        let mut state = self.0.state.lock().unwrap();
        *state = State { mode, pods: pods.to_vec(), version: state.version + 1 };
        self.0.changed.notify_all();
    }

    fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        let mut piece = [0; 4_096];
        let length = client.read(&mut piece)?;
        let request = String::from_utf8_lossy(&piece[..length]).into_owned();
        let expected = "GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                        ?labelSelector=kubernetes.io%2Fservice-name%3Dundrop";
        assert!(request.starts_with(expected), "{request}");
        let state = self.0.state.lock().unwrap();
        if state.mode == Mode::Away {
            return Ok(());
        }
        if !request.contains("watch=true") {
            let list = format!(
                r#"{{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#,
                state.version,
                slice(&state)
            );
            drop(state);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                list.len()
            );
            return client.write_all(format!("{head}{list}").as_bytes());
        }
        drop(state);
        client.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let version = request.split("resourceVersion=").nth(1).and_then(|rest| rest.split(' ').next());
        self.stream(client, version.and_then(|version| version.parse().ok()).unwrap_or(0))
    }

    /// Tells changes after a version until the mode is another one.
    fn stream(&self, mut client: TcpStream, mut version: u32) -> io::Result<()> {
        loop {
            let state = self.0.state.lock().unwrap();
            let state = self.0.changed.wait_while(state, |state| state.version == version).unwrap();
            version = state.version;
            let line = match state.mode {
                Mode::Answers => format!(r#"{{"type":"MODIFIED","object":{}}}"#, slice(&state)),
                Mode::Forgets => {
                    r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#.to_owned()
                }
                Mode::Away => return Ok(()),
            };
            let is_last = state.mode != Mode::Answers;
            drop(state);
            client.write_all(format!("{:x}\r\n{line}\n\r\n", line.len() + 1).as_bytes())?;
            if is_last {
                return client.write_all(b"0\r\n\r\n");
            }
        }
    }
}

/// Returns the slice of the pods.
fn slice(state: &State) -> String {
    let endpoint = |pod: &u8| {
        format!(
            r#"{{"addresses":["10.9.0.{pod}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"targetRef":{{"kind":"Pod","namespace":"default","name":"undrop-{pod}"}}}}"#
        )
    };
    let endpoints: Vec<String> = state.pods.iter().map(endpoint).collect();
    format!(
        r#"{{"metadata":{{"name":"undrop-x7k2p","namespace":"default","resourceVersion":"{}","labels":{{"kubernetes.io/service-name":"undrop"}}}},"addressType":"IPv4","endpoints":[{}],"ports":[{{"name":"undrop","protocol":"UDP","port":7900}},{{"name":"metrics","protocol":"TCP","port":9100}}]}}"#,
        state.version,
        endpoints.join(",")
    )
}

fn start(host: &Namespace) -> Node {
    let mut config = Config::default();
    config.node.interface = "eth0".to_owned();
    config.membership.kubernetes = Some("default/undrop".to_owned());
    config.membership.kubernetes_api = "http://10.9.0.4:8001".to_owned();
    host.run(|| Builder::from(config).start()).unwrap()
}

#[test]
fn the_pods_of_a_service_are_the_members() {
    let Some(lan) = Lan::build("the endpoints of Kubernetes", 4) else { return };
    let api = Api::start(&lan.hosts[3], &[1, 2]);
    let nodes: Vec<Node> = lan.hosts[..3].iter().map(start).collect();
    let subscriptions: Vec<Subscription> =
        nodes.iter().map(|node| node.join_with("g", &with_members()).unwrap()).collect();
    meet(&nodes[..2], "g");
    assert_eq!(nodes[0].members("g"), 1, "the third is no pod of the service");
    api.change(Mode::Answers, &[1, 2, 3]);
    meet(&nodes, "g");

    // Nothing happens while the API is away, whatever it would tell.
    api.change(Mode::Away, &[]);
    wait_until("the nodes notice it", || !nodes.iter().any(is_reached));
    nodes[0].send("g", &7u32.to_be_bytes()).unwrap();
    assert_eq!(numbers(&nodes[2], &subscriptions[2], 1), [7]);
    api.change(Mode::Answers, &[1, 2, 3]);
    wait_until("the nodes reach it again", || nodes.iter().all(is_reached));
    // A list without any pod changes nothing, and neither does a server that has forgotten old versions.
    api.change(Mode::Answers, &[]);
    let lists = |node: &Node| node.status().registry.map_or(0, |registry| registry.lists);
    let before = lists(&nodes[0]);
    api.change(Mode::Forgets, &[1, 2, 3]);
    wait_until("the node has a new list", || lists(&nodes[0]) > before);
    for subscription in &subscriptions {
        assert!(gone(subscription).is_empty(), "no member was ever taken away");
    }

    // A pod that is none of the service any more is gone, though it lives.
    let address = nodes[2].address();
    api.change(Mode::Answers, &[1, 2]);
    wait_until("the third is gone", || nodes[0].members("g") == 1 && nodes[1].members("g") == 1);
    assert_eq!(gone(&subscriptions[0]), [address]);
    api.end();
}
