"""What needs cuDF itself: payload columns on a GPU. Nothing else imports it."""
