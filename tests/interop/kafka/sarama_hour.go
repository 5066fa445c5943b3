// A Go service's first hour with sarama: program BROKER TOPIC GROUP.
// It ends with 0 where everything was as expected; what was not stands on standard error.
// With a fourth word it is a member of the group instead, until it is killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 4
	each       = 5
	deadline   = 60 * time.Second
	look       = 50 * time.Millisecond
)

var broker, topic, group string

func check(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func require(held bool, what string) {
	if !held {
		check(errors.New("it is not so"), what)
	}
}

func until(done func() bool, what string) {
	for end := time.Now().Add(deadline); !done(); time.Sleep(look) {
		require(time.Now().Before(end), what)
	}
}

func newConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 2 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	return config
}

// What a member has read, by partition and offset.
type taker struct {
	guard sync.Mutex
	seen  map[string]bool
}

func (taker *taker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (taker *taker) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (taker *taker) count() int {
	taker.guard.Lock()
	defer taker.guard.Unlock()
	return len(taker.seen)
}

func (taker *taker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		taker.guard.Lock()
		taker.seen[fmt.Sprint(message.Partition, "-", message.Offset)] = true
		taker.guard.Unlock()
		session.MarkMessage(message, "")
		session.Commit()
	}
	return nil
}

// A member of the group; what is returned ends it.
func join() (*taker, func()) {
	member, err := sarama.NewConsumerGroup([]string{broker}, group, newConfig())
	check(err, "a member")
	running, stop := context.WithCancel(context.Background())
	took, ended := &taker{seen: map[string]bool{}}, make(chan struct{})
	go func() {
		for running.Err() == nil {
			if err := member.Consume(running, []string{topic}, took); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				check(err, "consume")
			}
		}
		close(ended)
	}()
	return took, func() {
		stop()
		<-ended
		check(member.Close(), "close the member")
	}
}

func produce(admin sarama.ClusterAdmin) {
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false), "create topic")
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD} {
		config := newConfig()
		config.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer([]string{broker}, config)
		check(err, "a producer")
		for number := int32(0); number < partitions; number++ {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: number, Key: sarama.StringEncoder("key"),
				Value: sarama.StringEncoder(codec.String()), Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte("x")}}})
			check(err, "send")
		}
		check(producer.Close(), "close the producer")
	}
}

// Partitions of each member of the group, while it is at rest.
func shares(admin sarama.ClusterAdmin) string {
	groups, err := admin.DescribeConsumerGroups([]string{group})
	check(err, "describe groups")
	var counts []int
	if groups[0].State == "Stable" {
		for _, member := range groups[0].Members {
			assigned, err := member.GetMemberAssignment()
			check(err, "an assignment")
			counts = append(counts, len(assigned.Topics[topic]))
		}
	}
	return fmt.Sprint(counts)
}

func shareOut(admin sarama.ClusterAdmin) {
	took, leave := join()
	until(func() bool { return took.count() == partitions*each }, "all messages")
	second := exec.Command(os.Args[0], broker, topic, group, "member")
	second.Stderr = os.Stderr
	check(second.Start(), "start the second member")
	until(func() bool { return shares(admin) == "[2 2]" }, "halves")
	check(second.Process.Kill(), "kill")
	_ = second.Wait()
	until(func() bool { return shares(admin) == "[4]" }, "everything again")
	leave()
	until(func() bool { return shares(admin) == "[]" }, "nobody")
}

func offsets(client sarama.Client, admin sarama.ClusterAdmin) {
	found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
	check(err, "offsets of the group")
	for number := int32(0); number < partitions; number++ {
		require(found.GetBlock(topic, number).Offset == each, "all were committed")
	}
	offsets, err := sarama.NewOffsetManagerFromClient(group, client)
	check(err, "an offset manager")
	managed, err := offsets.ManagePartition(topic, 0)
	check(err, "a managed partition")
	managed.ResetOffset(2, "back")
	check(managed.Close(), "close the partition")
	check(offsets.Close(), "close the offset manager")
	took, leave := join()
	until(func() bool { return took.count() == each-2 }, "what the offset was set back to")
	leave()
}

func administer(client sarama.Client, admin sarama.ClusterAdmin) {
	end, err := client.GetOffset(topic, 3, sarama.OffsetNewest)
	check(err, "an end")
	require(end == each, "the end")
	value := "3600000"
	check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false), "alter a topic")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	check(err, "describe a topic's settings")
	require(entries[0].Value == value, "the new retention")
	check(admin.CreatePartitions(topic, partitions+2, nil, false), "add partitions")
	described, err := admin.DescribeTopics([]string{topic})
	check(err, "describe a topic")
	require(len(described[0].Partitions) == partitions+2, "six partitions")
	check(admin.DeleteRecords(topic, map[int32]int64{0: 2}), "delete records")
	_, controller, err := admin.DescribeCluster()
	check(err, "describe the cluster")
	require(controller == 1, "the controller")
	until(func() bool {
		err := admin.DeleteConsumerGroup(group)
		require(err == nil || errors.Is(err, sarama.ErrNonEmptyGroup), "a group with members is not deleted")
		return err == nil
	}, "the group is deleted")
	check(admin.DeleteTopic(topic), "delete the topic")
}

func main() {
	broker, topic, group = os.Args[1], os.Args[2], os.Args[3]
	if len(os.Args) > 4 {
		join()
		select {}
	}
	client, err := sarama.NewClient([]string{broker}, newConfig())
	check(err, "a client")
	admin, err := sarama.NewClusterAdmin([]string{broker}, newConfig())
	check(err, "an administrator")
	produce(admin)
	shareOut(admin)
	offsets(client, admin)
	administer(client, admin)
	check(admin.Close(), "close the administrator")
	check(client.Close(), "close the client")
}
