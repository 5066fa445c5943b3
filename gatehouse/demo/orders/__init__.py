"""An order service and a billing service: half messages at work, told in docs/transactions.md.

    python -m gatehouse.demo.orders shop mqtt://127.0.0.1:1883 --database sqlite:///shop.sqlite --orders 100
    python -m gatehouse.demo.orders billing http://127.0.0.1:8080 --database sqlite:///billing.sqlite

    ledger      the shop's own database: orders, and what became of each transaction
    shop        places orders, and answers what became of them
    billing     writes one bill for each order, though messages may come twice
    link        what a door must do for the shop; one file for each door:
    http_link   the Python client
    mqtt_link   paho
    amqp_link   pika
    kafka_link  librdkafka

Each of them may be killed at any time, and so may the hub: there is one bill for every order, and no other.
"""
