// Command go receives and sends messages by cgo: two nodes of one process.
//
//	CGO_CFLAGS=-I../../include CGO_LDFLAGS="-L../../../../target/debug -lricochet_c" go run .
package main

/*
#include <stdlib.h>
#include "ricochet.h"
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// call does a call of the library, and returns its error, whose text belongs to the thread of the call.
func call(do func() uint32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if result := do(); result != C.RICOCHET_OK {
		return fmt.Errorf("result %d: %s", int(result), C.GoString(C.ricochet_error()))
	}
	return nil
}

// text does work with a text of C.
func text(text string, do func(*C.char) uint32) error {
	chars := C.CString(text)
	defer C.free(unsafe.Pointer(chars))
	return call(func() uint32 { return do(chars) })
}

// start starts a node on the loopback interface.
func start(seed string) (*C.ricochet_node, error) {
	settings := "[node]\ninterface = \"lo\"\naddress = \"127.0.0.1\"\nport = 0\nunicast = true\n"
	if seed != "" {
		settings += fmt.Sprintf("[membership]\nseeds = [%q]\n", seed)
	}
	var options *C.ricochet_options
	err := text(settings, func(toml *C.char) uint32 { return C.ricochet_options_parse(toml, &options) })
	if err != nil {
		return nil, err
	}
	defer C.ricochet_options_free(options)
	var node *C.ricochet_node
	err = call(func() uint32 { return C.ricochet_node_start(options, &node) })
	return node, err
}

func run(count int) error {
	receiver, err := start("")
	if err != nil {
		return err
	}
	defer C.ricochet_node_free(receiver)
	var prices *C.ricochet_subscription
	err = text("prices", func(group *C.char) uint32 {
		return C.ricochet_join(receiver, &group, 1, nil, &prices)
	})
	if err != nil {
		return err
	}
	defer C.ricochet_subscription_free(prices)

	node, err := start(C.GoString(C.ricochet_node_address(receiver)))
	if err != nil {
		return err
	}
	defer C.ricochet_node_free(node)
	var sender *C.ricochet_sender
	err = text("prices", func(group *C.char) uint32 {
		if result := C.ricochet_node_wait_for_members(node, group, 1, 30_000_000); result != C.RICOCHET_OK {
			return result
		}
		return C.ricochet_sender_new(node, group, 0, &sender)
	})
	if err != nil {
		return err
	}
	defer C.ricochet_sender_free(sender)

	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send(sender, count)
	}()
	// No handle may be freed while the goroutine uses it. Closing the node ends its wait for room.
	defer func() {
		C.ricochet_node_close(node)
		<-sent
	}()
	return receive(prices, count)
}

// send sends messages with numbers.
func send(sender *C.ricochet_sender, count int) {
	for number := 0; number < count; number++ {
		message := []byte(fmt.Sprintf("message %d from Go", number))
		bytes, length := unsafe.Pointer(&message[0]), C.size_t(len(message))
		sent := call(func() uint32 {
			return C.ricochet_send(sender, bytes, length, C.RICOCHET_FOREVER, nil)
		})
		if sent != nil {
			fmt.Fprintln(os.Stderr, "send:", sent)
			return
		}
	}
}

// receive prints messages until it has as many as are sent.
func receive(prices *C.ricochet_subscription, count int) error {
	buffer := make([]byte, 1500)
	for seen := 0; seen < count; {
		var received C.ricochet_received
		err := call(func() uint32 {
			return C.ricochet_recv(prices, unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)), 30_000_000, &received)
		})
		if err != nil {
			return err
		}
		if received.event == C.RICOCHET_MESSAGE {
			seen++
			fmt.Printf("%s: %s\n", C.GoString(&received.group[0]), buffer[:received.length])
		}
	}
	return nil
}

func main() {
	if err := run(100); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
