// A Go service's first hour with RabbitMQ's client: program PORT.
// It ends with 0 where everything was as expected; what was not stands on standard error.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const deadline = 60 * time.Second

func check(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

func require(held bool, what string) {
	if !held {
		check(errors.New("it is not so"), what)
	}
}

func take(deliveries <-chan amqp.Delivery, what string) amqp.Delivery {
	select {
	case delivery, open := <-deliveries:
		require(open, what)
		return delivery
	case <-time.After(deadline):
		require(false, what)
		return amqp.Delivery{}
	}
}

func topology(channel *amqp.Channel) {
	check(channel.ExchangeDeclare("go.logs", "topic", true, false, false, false, nil), "exchange")
	check(channel.ExchangeDeclare("go.all", "fanout", true, false, false, false, nil), "exchange")
	check(channel.ExchangeBind("go.all", "app.#", "go.logs", false, nil), "exchange binding")
	_, err := channel.QueueDeclare("go.work", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int32(2), "x-dead-letter-exchange": "",
		"x-dead-letter-routing-key": "go.dead"})
	check(err, "queue")
	_, err = channel.QueueDeclare("go.dead", true, false, false, false, nil)
	check(err, "queue")
	check(channel.QueueBind("go.work", "", "go.all", false, nil), "binding")
}

func confirms(connection *amqp.Connection) {
	channel, err := connection.Channel()
	check(err, "channel")
	check(channel.Confirm(false), "confirms")
	told := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	for i := 0; i < 1000; i++ {
		check(channel.PublishWithContext(context.Background(), "go.logs", "app.started", false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "text/plain", MessageId: fmt.Sprint(i), Timestamp: time.Unix(1700000000, 0),
			Headers: amqp.Table{"number": int64(i), "nested": amqp.Table{"list": []interface{}{"a", int32(1), true}}},
			Body:    []byte(fmt.Sprint("message ", i))}), "publish")
	}
	for i := 0; i < 1000; i++ {
		select {
		case confirmation := <-told:
			require(confirmation.Ack && confirmation.DeliveryTag == uint64(i+1), "confirms in order")
		case <-time.After(deadline):
			require(false, "a confirm")
		}
	}
	deferred, err := channel.PublishWithDeferredConfirmWithContext(context.Background(), "", "go.nowhere", true, false,
		amqp.Publishing{Body: []byte("x")})
	check(err, "deferred")
	require(deferred.Wait(), "a confirm of what is returned")
	require((<-returned).ReplyCode == amqp.NoRoute, "a return")
	check(channel.Close(), "close")
}

func consume(connection *amqp.Connection) {
	channel, err := connection.Channel()
	check(err, "channel")
	check(channel.Qos(20, 0, false), "prefetch")
	deliveries, err := channel.Consume("go.work", "", false, false, false, false, amqp.Table{"x-priority": int32(5)})
	check(err, "consume")
	for i := 0; i < 1000; i++ {
		delivery := take(deliveries, "a delivery")
		require(string(delivery.Body) == fmt.Sprint("message ", i) && delivery.Headers["number"] == int64(i), "in order")
		nested := delivery.Headers["nested"].(amqp.Table)["list"].([]interface{})
		require(nested[0] == "a" && nested[1] == int32(1) && nested[2] == true, "nested headers")
		if i%10 == 9 {
			check(delivery.Ack(true), "ack")
		}
	}
	check(channel.PublishWithContext(context.Background(), "", "go.work", false, false, amqp.Publishing{Body: []byte("poison")}), "publish")
	for tries := 0; tries < 3; tries++ {
		delivery := take(deliveries, "poison")
		require(string(delivery.Body) == "poison" && delivery.Redelivered == (tries > 0), "it comes again")
		check(delivery.Nack(false, true), "nack")
	}
	dead, err := channel.Consume("go.dead", "dead", true, false, false, false, nil)
	check(err, "consume")
	letter := take(dead, "a dead letter")
	death := letter.Headers["x-death"].([]interface{})[0].(amqp.Table)
	require(death["reason"] == "delivery_limit" && death["queue"] == "go.work" && death["count"] == int64(1), "why it died")
	check(channel.Cancel("dead", false), "cancel")
	gone := channel.NotifyCancel(make(chan string, 1))
	other, err := connection.Channel()
	check(err, "channel")
	_, err = other.QueueDelete("go.work", false, false, false)
	check(err, "delete")
	select {
	case <-gone:
	case <-time.After(deadline):
		require(false, "the consumer is told that its queue is gone")
	}
}

func transactions(connection *amqp.Connection) {
	channel, err := connection.Channel()
	check(err, "channel")
	check(channel.Tx(), "tx")
	publish := func(body string) {
		check(channel.PublishWithContext(context.Background(), "", "go.dead", false, false, amqp.Publishing{Body: []byte(body)}), "publish")
	}
	publish("rolled back")
	check(channel.TxRollback(), "rollback")
	publish("committed")
	check(channel.TxCommit(), "commit")
	delivery, ok, err := channel.Get("go.dead", true)
	check(err, "get")
	require(ok && bytes.Equal(delivery.Body, []byte("committed")), "what was committed, alone")
	_, ok, err = channel.Get("go.dead", true)
	check(err, "get")
	require(!ok, "nothing more")
}

func refusals(connection *amqp.Connection) {
	for code, ask := range map[int]func(*amqp.Channel) error{
		amqp.NotFound: func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclarePassive("go.missing", true, false, false, false, nil)
			return err
		},
		amqp.PreconditionFailed: func(channel *amqp.Channel) error {
			return channel.ExchangeDeclare("go.logs", "direct", true, false, false, false, nil)
		},
		amqp.AccessRefused: func(channel *amqp.Channel) error {
			return channel.ExchangeDeclare("amq.mine", "direct", true, false, false, false, nil)
		},
	} {
		channel, err := connection.Channel()
		check(err, "channel")
		refused := &amqp.Error{}
		require(errors.As(ask(channel), &refused) && refused.Code == code, fmt.Sprint("refused with ", code))
	}
}

func main() {
	config := amqp.Config{Heartbeat: 5 * time.Second, Properties: amqp.NewConnectionProperties()}
	config.Properties.SetClientConnectionName("hour")
	connection, err := amqp.DialConfig(fmt.Sprintf("amqp://guest:guest@127.0.0.1:%s/", os.Args[1]), config)
	check(err, "dial")
	channel, err := connection.Channel()
	check(err, "channel")
	topology(channel)
	confirms(connection)
	consume(connection)
	transactions(connection)
	refusals(connection)
	check(connection.UpdateSecret("guest", "renewed"), "update secret")
	check(connection.Close(), "close")
}
