// A Go service's first hour with kafka-go: program BROKER TOPIC GROUP.
// It ends with 0 where everything was as expected; what was not stands on standard error.
// With a fourth word it is a member of the group instead, until it is killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/segmentio/kafka-go"
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

func newReader() *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		MaxWait: 200 * time.Millisecond, SessionTimeout: 2 * time.Second, HeartbeatInterval: 200 * time.Millisecond,
		RebalanceTimeout: 5 * time.Second, JoinGroupBackoff: 200 * time.Millisecond})
}

func member(kill context.Context) {
	reader := newReader()
	for {
		_, err := reader.FetchMessage(kill)
		check(err, "fetch of the second member")
	}
}

func produce(client *kafka.Client) {
	answer, err := client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}})
	check(err, "create topics")
	check(answer.Errors[topic], "create topic")
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		writer := &kafka.Writer{Addr: kafka.TCP(broker), Topic: topic, Balancer: &kafka.RoundRobin{}, RequiredAcks: kafka.RequireAll,
			BatchTimeout: 10 * time.Millisecond, Compression: codec}
		var messages []kafka.Message
		for number := 0; number < partitions; number++ {
			messages = append(messages, kafka.Message{Key: []byte(fmt.Sprint(number)), Value: []byte(fmt.Sprint(codec, number)),
				Headers: []kafka.Header{{Key: "codec", Value: []byte(fmt.Sprint(codec))}}})
		}
		check(writer.WriteMessages(context.Background(), messages...), "write")
		check(writer.Close(), "close the writer")
	}
}

func take(reader *kafka.Reader, count int) {
	limit, end := context.WithTimeout(context.Background(), deadline)
	defer end()
	seen := map[string]bool{}
	for len(seen) < count {
		message, err := reader.FetchMessage(limit)
		check(err, fmt.Sprint("fetch after ", len(seen), " messages"))
		require(len(message.Headers) == 1 && message.Headers[0].Key == "codec", "headers")
		place := fmt.Sprint(message.Partition, "-", message.Offset)
		require(!seen[place], "each once")
		seen[place] = true
		check(reader.CommitMessages(limit, message), "commit")
	}
}

// Members of the group with any partition, while it is at rest.
func sharers(client *kafka.Client) int {
	answer, err := client.DescribeGroups(context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	check(err, "describe groups")
	if answer.Groups[0].GroupState != "Stable" {
		return 0
	}
	count := 0
	for _, member := range answer.Groups[0].Members {
		for _, assigned := range member.MemberAssignments.Topics {
			if len(assigned.Partitions) > 0 {
				count++
			}
		}
	}
	return count
}

func shareOut(client *kafka.Client) {
	first := newReader()
	take(first, partitions*each)
	until(func() bool { return sharers(client) == 1 }, "one member")
	second := exec.Command(os.Args[0], broker, topic, group, "member")
	second.Stderr = os.Stderr
	stays, err := second.StdinPipe()
	check(err, "standard input of the second member")
	check(second.Start(), "start the second member")
	until(func() bool { return sharers(client) == 2 }, "two members")
	check(second.Process.Kill(), "kill")
	_ = second.Wait()
	_ = stays.Close()
	until(func() bool { return sharers(client) == 1 }, "one member again")
	check(first.Close(), "close the reader")
}

func offsets(client *kafka.Client) {
	all := make([]int, partitions)
	for number := range all {
		all[number] = number
	}
	answer, err := client.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: all}})
	check(err, "offset fetch")
	sum := int64(0)
	for _, row := range answer.Topics[topic] {
		check(row.Error, "an offset")
		sum += row.CommittedOffset
	}
	require(sum == partitions*each, fmt.Sprint("all were committed, not ", sum))
	back := []kafka.OffsetCommit{{Partition: 0, Offset: 0}, {Partition: 1, Offset: 2}}
	moved, err := client.OffsetCommit(context.Background(), &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{topic: back}})
	check(err, "offset commit")
	for _, row := range moved.Topics[topic] {
		check(row.Error, "an offset's commit")
	}
	again := newReader()
	take(again, each+each-2)
	check(again.Close(), "close the reader")
}

func administer(client *kafka.Client) {
	none := context.Background()
	listed, err := client.ListOffsets(none, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}})
	check(err, "list offsets")
	bounds := listed.Topics[topic][0]
	require(bounds.FirstOffset == 0 && bounds.LastOffset == each, "bounds")
	altered, err := client.IncrementalAlterConfigs(none, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "3600000"}}}}})
	check(err, "alter configs")
	check(altered.Resources[0].Error, "alter a topic")
	described, err := client.DescribeConfigs(none, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}}})
	check(err, "describe configs")
	require(described.Resources[0].ConfigEntries[0].ConfigValue == "3600000", "the new retention")
	more, err := client.CreatePartitions(none, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: partitions + 2}}})
	check(err, "create partitions")
	check(more.Errors[topic], "add partitions")
	connection, err := kafka.Dial("tcp", broker)
	check(err, "dial")
	found, err := connection.ReadPartitions(topic)
	check(err, "read partitions")
	require(len(found) == partitions+2, "six partitions")
	check(connection.Close(), "close")
	deleted, err := client.DeleteGroups(none, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	check(err, "delete groups")
	check(deleted.Errors[group], "delete the group")
	gone, err := client.DeleteTopics(none, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err, "delete topics")
	check(gone.Errors[topic], "delete the topic")
}

func main() {
	broker, topic, group = os.Args[1], os.Args[2], os.Args[3]
	if len(os.Args) > 4 {
		kill, end := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end()
		}()
		member(kill)
	}
	client := &kafka.Client{Addr: kafka.TCP(broker), Timeout: deadline}
	produce(client)
	shareOut(client)
	offsets(client)
	administer(client)
}
