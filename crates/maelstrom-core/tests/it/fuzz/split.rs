//! A carrier whose far end sends anything.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user takes a part of it")]

use std::net::SocketAddr;

use maelstrom_core::split::{BUFFER_MIN, Body, Ends, Event, Frame, Mux, Pool, Refusal, Role};

/// Gives the bytes to both ends of a carrier, whose hosts take some of what arrives.
pub fn split(data: &[u8]) {
    for role in [Role::Acceptor, Role::Dialer] {
        let mut pool = Pool::new(BUFFER_MIN, 2);
        let mut mux = Mux::new(role, 0);
        if role == Role::Dialer {
            mux.want_advance();
            let end = SocketAddr::from(([10, 81, 1, 2], 80));
            for _ in 0..8 {
                mux.open(Ends { client: end, server: end }, &mut pool).unwrap();
            }
        }
        // The first byte decides how many bytes arrive at a time.
        let step = data.first().map_or(1, |byte| usize::from(*byte) * 8 + 1);
        let mut input = Vec::new();
        for (turn, chunk) in data.get(1..).unwrap_or_default().chunks(step).enumerate() {
            input.extend_from_slice(chunk);
            let mut events = Vec::new();
            let Ok(taken) = mux.handle_input(turn as u64, &input, &mut pool, &mut events) else { break };
            input.drain(..taken);
            for event in events {
                answer(&mut mux, &mut pool, event, turn);
            }
            assert!(pool.promised() + pool.advanced() <= BUFFER_MIN && mux.waiting() <= pool.promised());
            mux.handle_timeout(turn as u64 * 500_000, &mut pool);
        }
        assert_eq!(pool.streams(), mux.streams() as u64);
        let mut output = mux.output();
        while let Some((_, length)) = Frame::parse(output).expect("an end sends valid frames") {
            output = &output[length..];
        }
        assert!(output.is_empty());
        mux.end(&mut pool);
        assert_eq!((pool.promised(), pool.advanced()), (0, 0));
    }
}

fn answer(mux: &mut Mux, pool: &mut Pool, event: Event, turn: usize) {
    match event {
        Event::Open { stream, .. } if turn.is_multiple_of(3) => {
            mux.refuse(stream, Refusal::Unreachable, pool);
        }
        Event::Open { stream, .. } => mux.accept(stream, pool),
        Event::Opened(stream) => {
            let sent: Result<usize, ()> = mux.send_data(stream, |room| Ok(room.len().min(100)));
            sent.unwrap();
        }
        Event::Arrived(stream) | Event::Writable(stream) => {
            let waiting = mux.inbound(stream).0.len();
            mux.on_written(stream, waiting / 2, pool);
        }
        Event::Refused(..) | Event::Reset(_) | Event::Leaving => {}
    }
}

/// A frame of each kind, for the corpus.
pub fn specimens() -> Vec<(&'static str, Vec<u8>)> {
    let ends = Ends {
        client: SocketAddr::from(([10, 81, 1, 2], 40_000)),
        server: SocketAddr::from(([10, 81, 2, 2], 80)),
    };
    let with = |bodies: &[Body<'_>]| {
        let mut bytes = vec![255];
        for &body in bodies {
            Frame { stream: 1, body }.write(&mut bytes);
        }
        bytes
    };
    let open = Body::Open { credit: 1 << 16, advance: 0, ends };
    let in_advance = Body::Open { credit: 1 << 16, advance: 30_000, ends };
    let data = Body::Data { limited: true, bytes: &[7; 1_000] };
    vec![
        ("open", with(&[open, data, Body::Credit(5), Body::Return(5), Body::End, Body::Reset])),
        ("answers", with(&[Body::Opened { credit: 1 << 16 }, data, Body::Credit(1 << 20), data, Body::End])),
        ("leaving", with(&[Body::Ping(1), Body::Leaving, Body::Opened { credit: 1 }])),
        ("advance", with(&[Body::Advance(1 << 20), in_advance, data, Body::Return(20_000), in_advance])),
        ("refused", with(&[Body::Ping(1), Body::Pong(2), Body::Refused(Refusal::Refused)])),
    ]
}
