import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageListener;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.DirectMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.adapter.MessageListenerAdapter;
import org.springframework.amqp.rabbit.transaction.RabbitTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

/** What a Spring service does with its defaults: java SpringHour PORT. A line for each step that went as it should. */
public class SpringHour {
    static final long DEADLINE_S = 60;

    static void check(boolean held, String what) {
        if (!held) throw new AssertionError(what);
    }

    static void ok(String step) {
        System.out.println("ok " + step);
    }

    static <T extends AbstractMessageListenerContainer> T started(T container, String queue, MessageListener listener) {
        container.setQueueNames(queue);
        container.setMessageListener(listener);
        container.afterPropertiesSet();
        container.start();
        return container;
    }

    static void takeAll(AbstractMessageListenerContainer container, RabbitTemplate template, String name)
            throws Exception {
        List<String> taken = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(500);
        started(container, "work", message -> {
            taken.add(new String(message.getBody()));
            all.countDown();
        });
        for (int i = 0; i < 500; i++) template.convertAndSend("jobs", "job.new", "job " + i);
        check(all.await(DEADLINE_S, TimeUnit.SECONDS), name + ": " + taken.size());
        container.stop();
        check(taken.size() == 500 && taken.get(0).equals("job 0") && taken.get(499).equals("job 499"), name);
        ok(name);
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);                    // containers that still run would keep the process
        }
        System.exit(0);
    }

    static void run(String[] arguments) throws Exception {
        CachingConnectionFactory factory = new CachingConnectionFactory("127.0.0.1", Integer.parseInt(arguments[0]));
        factory.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
        factory.setPublisherReturns(true);
        RabbitAdmin admin = new RabbitAdmin(factory);
        RabbitTemplate template = new RabbitTemplate(factory);

        TopicExchange jobs = new TopicExchange("jobs");
        Queue work = QueueBuilder.durable("work").deadLetterExchange("").deadLetterRoutingKey("work.dead").build();
        admin.declareExchange(jobs);
        admin.declareQueue(work);
        admin.declareQueue(new Queue("work.dead"));
        Binding binding = BindingBuilder.bind(work).to(jobs).with("job.#");
        admin.declareBinding(binding);
        check(admin.getQueueInfo("work").getMessageCount() == 0 && admin.getQueueInfo("missing") == null, "queue info");
        ok("RabbitAdmin");

        template.convertAndSend("jobs", "job.1", "order 17", message -> {
            message.getMessageProperties().setHeader("tries", 3);
            return message;
        });
        Message received = template.receive("work", TimeUnit.SECONDS.toMillis(DEADLINE_S));
        check(received != null && "order 17".equals(new String(received.getBody())), "a text came back");
        check(received.getMessageProperties().getHeader("tries").equals(3), "a header came back");
        check(template.receive("work") == null, "nothing more");
        ok("RabbitTemplate");

        CorrelationData routed = new CorrelationData("1");
        template.convertAndSend("jobs", "job.2", "confirmed", routed);
        check(routed.getFuture().get(DEADLINE_S, TimeUnit.SECONDS).isAck(), "an ack");
        template.setMandatory(true);
        CorrelationData lost = new CorrelationData("2");
        template.convertAndSend("jobs", "nobody", "returned", lost);
        check(lost.getFuture().get(DEADLINE_S, TimeUnit.SECONDS).isAck(), "an ack of what is returned");
        check(lost.getReturned() != null && lost.getReturned().getReplyCode() == 312, "a return");
        check("confirmed".equals(template.receiveAndConvert("work", 5_000)), "what was confirmed");
        ok("confirms and returns");

        takeAll(new SimpleMessageListenerContainer(factory), template, "SimpleMessageListenerContainer");
        takeAll(new DirectMessageListenerContainer(factory), template, "DirectMessageListenerContainer");

        admin.declareQueue(new Queue("rpc"));
        MessageListenerAdapter service = new MessageListenerAdapter(new Object() {
            public String handleMessage(String question) {
                return "answer to " + question;
            }
        });
        SimpleMessageListenerContainer server = started(new SimpleMessageListenerContainer(factory), "rpc", service);
        RabbitTemplate asking = new RabbitTemplate(factory);
        asking.setReplyTimeout(TimeUnit.SECONDS.toMillis(DEADLINE_S));
        for (int i = 0; i < 20; i++)
            check(("answer to " + i).equals(asking.convertSendAndReceive("rpc", "" + i)), "an answer to " + i);
        RabbitTemplate temporary = new RabbitTemplate(factory);
        temporary.setUseTemporaryReplyQueues(true);
        temporary.setReplyTimeout(TimeUnit.SECONDS.toMillis(DEADLINE_S));
        check("answer to x".equals(temporary.convertSendAndReceive("rpc", "x")), "an answer by a queue");
        asking.stop();
        server.stop();
        ok("sendAndReceive");

        AtomicInteger tries = new AtomicInteger();
        CountDownLatch twice = new CountDownLatch(3);
        SimpleMessageListenerContainer failing = started(new SimpleMessageListenerContainer(factory), "work", message -> {
            twice.countDown();
            if (tries.incrementAndGet() < 3) {
                check(message.getMessageProperties().isRedelivered() == (tries.get() > 1), "redelivered");
                throw new IllegalStateException("it comes again");
            }
            throw new AmqpRejectAndDontRequeueException("never again");
        });
        template.convertAndSend("jobs", "job.bad", "poison");
        check(twice.await(DEADLINE_S, TimeUnit.SECONDS), "three tries");
        Message dead = template.receive("work.dead", TimeUnit.SECONDS.toMillis(DEADLINE_S));
        check(dead != null && "poison".equals(new String(dead.getBody())), "a dead letter");
        Map<String, ?> death = dead.getMessageProperties().getXDeathHeader().get(0);
        check(death.get("reason").equals("rejected") && death.get("queue").equals("work"), "a reason");
        failing.stop();
        ok("listeners that fail");

        CachingConnectionFactory plain = new CachingConnectionFactory("127.0.0.1", Integer.parseInt(arguments[0]));
        RabbitTemplate transacted = new RabbitTemplate(plain);
        transacted.setChannelTransacted(true);
        TransactionTemplate within = new TransactionTemplate(new RabbitTransactionManager(plain));
        within.executeWithoutResult(status -> {
            transacted.convertAndSend("jobs", "job.3", "rolled back");
            status.setRollbackOnly();
        });
        within.executeWithoutResult(status -> transacted.convertAndSend("jobs", "job.4", "committed"));
        check("committed".equals(template.receiveAndConvert("work", TimeUnit.SECONDS.toMillis(DEADLINE_S))), "a commit");
        check(template.receive("work") == null, "a rollback");
        ok("transactions");

        CountDownLatch parallel = new CountDownLatch(2_000);
        SimpleMessageListenerContainer many = new SimpleMessageListenerContainer(factory);
        many.setConcurrentConsumers(4);
        started(many, "work", message -> parallel.countDown());
        for (int i = 0; i < 2_000; i++) template.convertAndSend("jobs", "job.5", "" + i);
        check(parallel.await(DEADLINE_S, TimeUnit.SECONDS), "all of them");
        admin.purgeQueue("work");
        many.stop();
        check(admin.deleteQueue("work") && admin.deleteExchange("jobs"), "they go");
        ok("concurrent consumers");
        plain.destroy();
        factory.destroy();
    }
}
