"""The page's lower sections: what each answers when it comes near, and what it draws."""
