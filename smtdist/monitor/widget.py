def widget_bundle(view):
    return None
