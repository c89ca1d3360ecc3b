"""What tests share: models, engines, faults and the words that tests are written in."""
