// A stand-in for kcptun: TCP connections are streams of one KCP session, which has Reed-Solomon repairs (10 and 3
// of each 13 packets) and encryption. It has kcptun's libraries and defaults, but for the mode, which is its
// fastest, and for windows and buffers, which hold what a gigabit link of 100 ms does.
package main

import (
	"crypto/sha256"
	"flag"
	"io"
	"log"
	"net"

	kcp "github.com/xtaci/kcp-go/v5"
	"github.com/xtaci/smux"
)

const (
	window   = 16384
	mtu      = 1350
	sockBuf  = 16 << 20
	data     = 10
	repairs  = 3
	streamed = 32 << 20
)

func tune(session *kcp.UDPSession) {
	session.SetStreamMode(true)
	session.SetWriteDelay(false)
	session.SetNoDelay(1, 10, 2, 1)
	session.SetWindowSize(window, window)
	session.SetMtu(mtu)
	session.SetACKNoDelay(false)
}

func settings() *smux.Config {
	config := smux.DefaultConfig()
	config.Version = 2
	config.MaxReceiveBuffer = 2 * streamed
	config.MaxStreamBuffer = streamed
	return config
}

// forward copies both ways until one side ends.
func forward(one, other io.ReadWriteCloser) {
	defer one.Close()
	defer other.Close()
	done := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		io.Copy(to, from)
		done <- struct{}{}
	}
	go pass(one, other)
	go pass(other, one)
	<-done
}

// serve takes a session and connects each of its streams to a host.
func serve(listen, to string, block kcp.BlockCrypt) error {
	listener, err := kcp.ListenWithOptions(listen, block, data, repairs)
	if err != nil {
		return err
	}
	listener.SetReadBuffer(sockBuf)
	listener.SetWriteBuffer(sockBuf)
	for {
		session, err := listener.AcceptKCP()
		if err != nil {
			return err
		}
		tune(session)
		go func() {
			streams, err := smux.Server(session, settings())
			if err != nil {
				log.Print(err)
				return
			}
			for {
				stream, err := streams.AcceptStream()
				if err != nil {
					return
				}
				go func() {
					host, err := net.Dial("tcp", to)
					if err != nil {
						log.Print(err)
						stream.Close()
						return
					}
					forward(host, stream)
				}()
			}
		}()
	}
}

// connect opens a session and carries each connection that comes as a stream of it.
func connect(listen, to string, block kcp.BlockCrypt) error {
	session, err := kcp.DialWithOptions(to, block, data, repairs)
	if err != nil {
		return err
	}
	tune(session)
	session.SetReadBuffer(sockBuf)
	session.SetWriteBuffer(sockBuf)
	streams, err := smux.Client(session, settings())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		host, err := listener.Accept()
		if err != nil {
			return err
		}
		stream, err := streams.OpenStream()
		if err != nil {
			return err
		}
		go forward(host, stream)
	}
}

func main() {
	server := flag.Bool("server", false, "take sessions and connect their streams to -to")
	listen := flag.String("listen", "", "address of the connections, or with -server of the sessions")
	to := flag.String("to", "", "address of the server, or with -server of the host")
	flag.Parse()
	key := sha256.Sum256([]byte("bench"))
	block, err := kcp.NewAESBlockCrypt(key[:])
	if err != nil {
		log.Fatal(err)
	}
	if *server {
		log.Fatal(serve(*listen, *to, block))
	}
	log.Fatal(connect(*listen, *to, block))
}
