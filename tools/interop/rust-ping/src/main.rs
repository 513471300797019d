//! One end of a ping: rust-ping ping|pong connect|listen ENDPOINT KEY
//! `ping` reads the commands "rtt BYTES COUNT" and "flood BYTES COUNT", one a line, and answers in JSON.
use std::io::{stdin, BufRead};
use std::sync::{mpsc::channel, Mutex};
use std::time::{Duration, Instant};
use zenoh::{qos::CongestionControl, Config, Wait};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (role, how, endpoint, key) = (&args[1], &args[2], &args[3], &args[4]);
    let mut conf = Config::default();
    conf.insert_json5("mode", if how == "listen" { "'peer'" } else { "'client'" }).unwrap();
    conf.insert_json5(&format!("{how}/endpoints"), &format!("['{endpoint}']")).unwrap();
    conf.insert_json5("scouting/multicast/enabled", "false").unwrap();
    let session = zenoh::open(conf).wait().unwrap();
    let publisher = |name: &str| {
        let p = session.declare_publisher(format!("{key}/{name}"));
        p.congestion_control(CongestionControl::Block).express(true).wait().unwrap()
    };
    if role == "pong" {
        let (pong, done, count) = (publisher("pong"), publisher("pong"), Mutex::new(0u64));
        let echo = move |s: zenoh::sample::Sample| pong.put(s.payload().clone()).wait().unwrap();
        session.declare_subscriber(format!("{key}/ping")).callback(echo).background().wait().unwrap();
        let sink = move |s: zenoh::sample::Sample| match (s.payload().len(), &mut *count.lock().unwrap()) {
            (1, n) => done.put(std::mem::take(n).to_le_bytes()).wait().unwrap(),
            (_, n) => *n += 1,
        };
        session.declare_subscriber(format!("{key}/flood")).callback(sink).background().wait().unwrap();
        println!("{{}}");
        return stdin().lock().lines().for_each(drop);
    }
    let (ping, flood, (tx, rx)) = (publisher("ping"), publisher("flood"), channel());
    let back = move |s: zenoh::sample::Sample| tx.send(s.payload().to_bytes().to_vec()).unwrap();
    session.declare_subscriber(format!("{key}/pong")).callback(back).background().wait().unwrap();
    while rx.recv_timeout(Duration::from_millis(100)).is_err() { ping.put(vec![0; 8]).wait().unwrap() }
    while rx.recv_timeout(Duration::from_millis(300)).is_ok() {}
    println!("{{}}");
    for line in stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let (payload, n) = (vec![7u8; words[1].parse().unwrap()], words[2].parse().unwrap());
        let (mut ns, began) = (Vec::<u128>::with_capacity(n), Instant::now());
        for _ in 0..n {
            let sent = Instant::now();
            let to = if words[0] == "rtt" { &ping } else { &flood };
            to.put(payload.clone()).wait().unwrap();
            if words[0] == "rtt" { rx.recv().unwrap(); ns.push(sent.elapsed().as_nanos()) }
        }
        if words[0] == "rtt" { println!("{{\"ns\":{ns:?}}}"); continue }
        flood.put(vec![0]).wait().unwrap();
        let received = u64::from_le_bytes(rx.recv().unwrap().try_into().unwrap());
        println!("{{\"ns\":[{}],\"received\":{received}}}", began.elapsed().as_nanos());
    }
}
