//! Two nodes on this machine: one sends, the other receives. On a network, give the interface's name alone.

use std::time::Duration;

use ricochet::Node;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = || Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
    let receiver = here().start()?;
    let prices = receiver.join("prices/AAPL")?;

    let sender = here().seed(receiver.address().to_string()).start()?;
    sender.wait_for_members("prices/AAPL", 1, Duration::from_secs(10));
    sender.send("prices/AAPL", b"187.21")?;

    let message = prices.recv()?;
    let how = if message.recovered() { "recovered" } else { "as sent" };
    println!("{} {} {how}", message.group(), String::from_utf8_lossy(message.payload()));
    Ok(())
}
