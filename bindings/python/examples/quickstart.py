"""Two nodes on this machine: one sends, the other receives. On a network, pass only the interface name."""

from undrop import multicast

with multicast.Node("lo", address="127.0.0.1", port=0, unicast=True) as receiver:
    prices = receiver.join("prices/AAPL")
    with multicast.Node("lo", address="127.0.0.1", port=0, unicast=True, seeds=[receiver.address]) as sender:
        sender.wait_for_members("prices/AAPL")
        sender.send("prices/AAPL", b"187.21")
        message = prices.recv(timeout=10.0)
        print(message.group, message.payload.decode(), "recovered" if message.recovered else "as sent")
