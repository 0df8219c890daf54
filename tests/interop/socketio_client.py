"""A client of the channel `socketio` on the package python-socketio: a conversation, a reconnection and a reminder.

The arguments are the URL of the server and a token. It runs with the server and the project of sockets.mjs.
"""

import queue
import sys

import socketio

URL, TOKEN = sys.argv[1:]
TIMEOUT = 30


class Client:
    """One connection that belongs to a session."""

    def __init__(self, session):
        self.session = session
        self.messages = queue.Queue()
        self.socket = socketio.Client()
        self.socket.on("bot_uttered", self.messages.put)
        self.socket.on("error", self.messages.put)
        confirmed = queue.Queue()
        self.socket.on("session_confirm", confirmed.put)
        self.socket.connect(URL, auth={"token": TOKEN})
        self.socket.emit("session_request", {"session_id": session})
        assert confirmed.get(timeout=TIMEOUT) == session

    def say(self, text):
        self.socket.emit("user_uttered", {"message": text, "session_id": self.session})

    def expect(self, *texts):
        for text in texts:
            message = self.messages.get(timeout=TIMEOUT)
            assert message.get("text") == text, message
        return message


client = Client("python")
client.say("What does the depot have?")
client.expect("One moment, I look into the timetable.", "The depot has ports.")
client.say("Please send a parcel")
buttons = client.expect("How fast?")["quick_replies"]
assert [button["title"] for button in buttons] == ["Express", "Slow"], buttons
client.socket.disconnect()

client = Client("python-reminder")
client.say("remind me")
client.expect("Your parcel waits.")
client.socket.call("user_uttered", {"message": "remind me", "session_id": client.session})
client.socket.disconnect()
client.socket.sleep(1.5)
client = Client("python-reminder")
client.expect("Your parcel waits.")
assert client.messages.empty()
client.socket.disconnect()
