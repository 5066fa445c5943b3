// What a device with Eclipse Paho for Go does: subscribe with a session that is kept and a history, print what comes,
// and publish each value back below "answers/", as MQTT 5 asks. Arguments: host:port, client id, filter, QoS, how many.
//
// It prints "subscribed" once its filter stands, then one line for each message: topic, QoS, value.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func main() {
	qos, _ := strconv.Atoi(os.Args[4])
	count, _ := strconv.Atoi(os.Args[5])
	wait, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	socket, err := net.Dial("tcp", os.Args[1])
	must(err)
	messages := make(chan *paho.Publish, 1000)
	client := paho.NewClient(paho.ClientConfig{
		Conn: socket,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(received paho.PublishReceived) (bool, error) {
				messages <- received.Packet
				return true, nil
			}},
	})
	expiry := uint32(3600)
	_, err = client.Connect(wait, &paho.Connect{ClientID: os.Args[2], KeepAlive: 30,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry}})
	must(err)
	asked := &paho.SubscribeProperties{}
	asked.User.Add("from", "earliest")
	_, err = client.Subscribe(wait, &paho.Subscribe{Properties: asked,
		Subscriptions: []paho.SubscribeOptions{{Topic: os.Args[3], QoS: byte(qos)}}})
	must(err)
	fmt.Println("subscribed")
	for at := 0; at < count; at++ {
		select {
		case message := <-messages:
			fmt.Println(message.Topic, message.QoS, string(message.Payload))
			_, err = client.Publish(wait, &paho.Publish{Topic: "answers/" + message.Topic, QoS: 2, Payload: message.Payload})
			must(err)
		case <-wait.Done():
			must(wait.Err())
		}
	}
	must(client.Disconnect(&paho.Disconnect{}))
}
