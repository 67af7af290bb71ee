"""What a submission tree holds and must hold: its layout, its files and the rules of a round."""
