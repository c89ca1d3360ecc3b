"""The editable timing cache of the stand-in: two tactics, 1 and 2, for each key."""

import json


class TimingCacheKey:
    def __init__(self, text):
        self.text = text

    @staticmethod
    def parse(text):
        if len(text) != 34:
            raise ValueError("The text should have exactly 34 characters.")
        return TimingCacheKey(text)

    def __str__(self):
        return self.text


class TimingCacheValue:
    def __init__(self, tacticHash, timingMSec):
        self.tacticHash, self.timingMSec = tacticHash, timingMSec


class TimingCache:
    def __init__(self, data):
        self.entries = json.loads(bytes(data).decode() or "{}")

    def queryKeys(self):
        return [TimingCacheKey(text) for text in self.entries]

    def query(self, key):
        return TimingCacheValue(self.entries[str(key)], 0.5)

    def update(self, key, value):
        if str(key) not in self.entries or value.tacticHash not in (1, 2):
            return False
        self.entries[str(key)] = value.tacticHash
        return True

    def serialize(self):
        return json.dumps(self.entries).encode()
